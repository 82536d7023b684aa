"""How far a position is behind the tail of its home's log: in records, bytes and seconds.

Theory of operation. The home's coordinator reads the tail of the log, and notes each run of
entries here: where it ends, its bytes, and when its first entry was appended. An owner notes
what it takes in. The lag of a
position is the sum of the runs behind it. The tail moves whether or not a target answers, so
the lag of a target that is frozen, or was never there, grows. All times are the home's: no
other clock is compared.

The number of runs is bounded. When there are too many, neighbours are joined, and the joined
run keeps the earlier time: a lag in seconds is then told too large, never too small. Within a
run, records count as equally large. Records before the first run count as large as the mean.
Where a bound depends on the lag, `at_most` counts runs as a whole, and guesses nothing.

Invariant: runs are contiguous, and the last one ends at the tail.

Rules: PROTOCOL T1 and T8.
"""

import attrs


@attrs.frozen
class TailLag:
    """The part of a log that a position lacks."""

    records: int
    bytes: int
    """Bytes of entries."""
    since_us: int | None
    """When the first of them was appended, or a little earlier; None if it lacks none."""


NO_TAIL_LAG = TailLag(0, 0, None)


@attrs.frozen
class _Run:
    first_sequence: int
    sequence_next: int
    size_bytes: int
    since_us: int

    def joined(self, later: "_Run") -> "_Run":
        return _Run(
            self.first_sequence,
            later.sequence_next,
            self.size_bytes + later.size_bytes,
            self.since_us if self.first_sequence < self.sequence_next else later.since_us,
        )


class TailHistory:
    """The last runs of one partition's log."""

    def __init__(self, runs_max: int = 128) -> None:
        assert runs_max >= 2
        self._runs_max = runs_max
        self._runs: list[_Run] = []
        self._records_seen = 0
        self._bytes_seen = 0

    def __repr__(self) -> str:
        return f"TailHistory({len(self._runs)} runs up to {self.sequence_next})"

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def sequence_next(self) -> int | None:
        """The sequence behind the tail; None before anything was noted."""
        return self._runs[-1].sequence_next if self._runs else None

    def on_run(
        self, first_sequence: int, sequence_next: int, *, size_bytes: int, since_us: int
    ) -> None:
        """Note entries at the tail: their sequences, their bytes, the first one's time."""
        if self._runs and first_sequence < sequence_next <= self._runs[-1].sequence_next:
            return  # A buffer is filled again from further back: the tail is where it was.
        if self._runs and first_sequence != self._runs[-1].sequence_next:
            self._runs.clear()  # The reader went on elsewhere: what is between is not known.
        self._runs.append(_Run(first_sequence, sequence_next, size_bytes, since_us))
        self._records_seen += sequence_next - first_sequence
        self._bytes_seen += size_bytes
        if len(self._runs) > self._runs_max:
            pairs = zip(self._runs[::2], self._runs[1::2], strict=False)
            joined = [one.joined(other) for one, other in pairs]
            if len(self._runs) % 2:
                joined.append(self._runs[-1])
            self._runs = joined

    def lag_of(self, sequence: int) -> TailLag:
        """The lag of a position whose next record has this sequence."""
        tail = self.sequence_next
        if tail is None or sequence >= tail:
            return NO_TAIL_LAG
        size_bytes = 0.0
        since_us = self._runs[-1].since_us
        for run in reversed(self._runs):
            if run.sequence_next <= sequence:
                break
            records = run.sequence_next - run.first_sequence
            lacking = run.sequence_next - max(sequence, run.first_sequence)
            size_bytes += run.size_bytes * lacking / max(1, records)
            since_us = run.since_us
        before = self._runs[0].first_sequence - sequence
        if before > 0:
            size_bytes += before * self._bytes_seen / max(1, self._records_seen)
        return TailLag(tail - sequence, round(size_bytes), since_us)

    def at_most(self, sequence: int) -> TailLag | None:
        """The lag of a position, never told too small; None if that is not known."""
        tail = self.sequence_next
        if tail is None or sequence >= tail:
            return None if tail is None else NO_TAIL_LAG
        if sequence < self._runs[0].first_sequence:
            return None
        size_bytes = 0
        since_us = self._runs[-1].since_us
        for run in reversed(self._runs):
            if run.sequence_next <= sequence:
                break
            size_bytes += run.size_bytes
            since_us = min(since_us, run.since_us)
        return TailLag(tail - sequence, size_bytes, since_us)
