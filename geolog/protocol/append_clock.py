"""The time that entries get: the owner's wall clock, held to the metadata store's.

Theory of operation. Reads by time go by append times, and these never decrease: one process
with a clock ahead would stamp all that others append after it. Each owner writes to the
metadata store, whose answers say what time it is there, and its monotonic clock says how long
ago that was. A wall clock that is further ahead than `AHEAD_US_MAX` is not believed: entries
get that limit instead. One that is behind is believed.

A host that slept seems to be ahead: its monotonic clock stood still. So the store is asked
before anybody is warned, and the warning comes with its answer. A question that fails is asked
again after `RETRY_S`; while the host's clock is held back, one comes every `ASK_AGAIN_S`. Two
clocks that differ are told once, then again when they differ by more than the limit from what
was told, and so is that they agree. Which of them is wrong nobody here knows.

Rules: PROTOCOL S2.
"""

import attrs

AHEAD_US_MAX = 300_000_000
"""How far append times may be ahead of the metadata store's clock: five minutes."""

ASK_AGAIN_S = 60.0
"""Pause after an answer while the host's clock is held back as was told."""

RETRY_S = 1.0
"""Pause after a question that failed, or that had no clear answer."""


@attrs.frozen
class AskStore:
    """Have the store say its time; `AppendClock.on_asked` is told what came of it."""


@attrs.frozen
class ClockAhead:
    """Warn: the wall clock is this far ahead, and entries do not get its time."""

    ahead_us: int


@attrs.frozen
class ClockRight:
    """Say that the wall clock is believed again."""


ClockEffect = AskStore | ClockAhead | ClockRight


@attrs.define
class AppendClock:
    """The core; one for each owner of a partition.

    Invariants: a time it gives is at most `AHEAD_US_MAX` ahead of the metadata store's, and is
    the wall clock's unless that is further ahead. It warns only when the store was asked after
    the clock was found ahead, and has answered.
    """

    _told_us: int = 0
    """How far ahead the clock was when that was last told; 0 while it is believed."""
    _is_asking: bool = False
    _is_sure: bool = False
    """Whether the store has answered, and nobody has looked since."""
    _answered_s: float = float("-inf")
    _ended_s: float = float("-inf")
    """When the last question was answered, or failed."""

    def read(
        self, *, local_us: int, metadata_us: int, now_s: float
    ) -> tuple[int, list[ClockEffect]]:
        """The time for an entry, given both clocks, and what is to be asked or told."""
        is_sure, self._is_sure = self._is_sure, False
        ahead_us = local_us - metadata_us
        if ahead_us > AHEAD_US_MAX:
            return metadata_us + AHEAD_US_MAX, self._on_ahead(ahead_us, now_s, is_sure=is_sure)
        if self._told_us and ahead_us <= AHEAD_US_MAX // 2:  # Not at each step over the limit.
            self._told_us = 0
            return local_us, [ClockRight()]
        return local_us, []

    def _on_ahead(self, ahead_us: int, now_s: float, *, is_sure: bool) -> list[ClockEffect]:
        is_news = abs(ahead_us - self._told_us) > AHEAD_US_MAX
        if is_news and is_sure:
            self._told_us = ahead_us
            return [ClockAhead(ahead_us)]
        is_due = is_news or now_s >= self._answered_s + ASK_AGAIN_S
        if self._is_asking or not is_due or now_s < self._ended_s + RETRY_S:
            return []
        self._is_asking = True
        return [AskStore()]

    def on_asked(self, *, is_answered: bool, now_s: float) -> None:
        """The store has said its time, or the question failed. Read the clock again."""
        self._is_asking = False
        self._is_sure = is_answered
        self._ended_s = now_s
        if is_answered:
            self._answered_s = now_s
