"""Seqs of a named writer that one partition remembers, as the writer's session knows them.

The owner told them when the session began; since then the session adds what it has appended
itself. So they are those that the log remembers, except for a session that was deposed.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.partition_state import BATCHES_REMEMBERED

_FIRST = attrgetter("first")


class KnownSeqs:
    """The seqs of the last batches, as many as the log remembers."""

    def __init__(self, remembered: Iterable[BatchSeqs] = ()) -> None:
        self._batches = list(remembered)

    def __repr__(self) -> str:
        return f"KnownSeqs({len(self._batches)} batches)"

    def add(self, seqs: BatchSeqs) -> None:
        """Add a batch that was acknowledged; its seqs are above all others."""
        self._batches.append(seqs)
        if len(self._batches) > BATCHES_REMEMBERED:
            del self._batches[0]

    def has(self, seq: int) -> bool:
        """Whether a remembered batch has this seq."""
        place = bisect_right(self._batches, seq, key=_FIRST) - 1
        return place >= 0 and self._batches[place].row_of(seq) is not None

    def is_left_out(self, seq: int) -> bool:
        """Whether a seq lies in a gap among these batches, so that it was never appended."""
        batches = self._batches
        if not batches or not batches[0].first <= seq <= batches[-1].last:
            return False
        return not self.has(seq)
