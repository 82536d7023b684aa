"""Decides how a process comes to own a whole stream, or one partition of it.

Theory of operation. A writer of a whole stream takes all partitions that there are, at once,
and only then reads how many there are. If the stream has grown, it takes the new ones, and
reads again. So there is one moment at which it owned every partition: when the last was taken,
none of the others was lost, because only the current owner can start a writer, which activates
a first ledger. Later writers find as many partitions, or more. A writer of one partition takes
that one, whatever the others do.

If two processes take over at the same time, and each gets some partitions first, neither
succeeds. The loser backs off before its caller hears of it: for a random time, up to
`BACK_OFFS_MAX` times as long as its attempt took, and at most `BACK_OFF_S_MAX`. If all losers
retried at once, they would keep overtaking each other for ever.

Invariants:
1. Each partition is taken once, and in order of their numbers.
2. Writers start when every partition that was counted after the last one was taken is owned.

Rules: PROTOCOL O7 and O8.
"""

import random

import attrs

BACK_OFFS_MAX = 3.0
"""Longest back-off after losing a takeover race, as a multiple of how long the attempt took."""

BACK_OFF_S_MAX = 3.0
"""Bound on that back-off. Appends must go on within 5 s plus two session time-outs (law 24)."""


@attrs.frozen
class TakePartitions:
    """Take these partitions over, all at once; then `on_taken`."""

    numbers: range


@attrs.frozen
class CountPartitions:
    """Read how many partitions the stream has now; then `on_count`."""


@attrs.frozen
class StartWriters:
    """Start the writers of all partitions taken: this is the last step."""


Step = TakePartitions | CountPartitions | StartWriters


class StreamTakeover:
    """One attempt to own a stream, or one partition of it."""

    def __init__(self, numbers: range, *, is_whole: bool, began_s: float) -> None:
        self._numbers = numbers
        self._is_whole = is_whole
        self._began_s = began_s

    def __repr__(self) -> str:
        return f"StreamTakeover({self._numbers})"

    @classmethod
    def of_stream(cls, partitions: int, *, now_s: float) -> "StreamTakeover":
        """Own all partitions of a stream that had this many when it was opened."""
        return cls(range(partitions), is_whole=True, began_s=now_s)

    @classmethod
    def of_partition(cls, number: int, *, now_s: float) -> "StreamTakeover":
        """Own one partition."""
        return cls(range(number, number + 1), is_whole=False, began_s=now_s)

    def begin(self) -> Step:
        """The first step."""
        return TakePartitions(self._numbers)

    def on_taken(self) -> Step:
        """All partitions of the last step are owned."""
        return CountPartitions() if self._is_whole else StartWriters()

    def on_count(self, partitions: int) -> Step:
        """The stream has this many partitions, as it was after the others were taken."""
        taken = self._numbers.stop
        if partitions <= taken:
            return StartWriters()
        self._numbers = range(taken, partitions)
        return TakePartitions(self._numbers)

    def on_overtaken(self, now_s: float, rng: random.Random) -> float:
        """How long to back off, after another process took a partition in between."""
        tried_s = now_s - self._began_s
        return rng.uniform(0, min(BACK_OFFS_MAX * tried_s, BACK_OFF_S_MAX))
