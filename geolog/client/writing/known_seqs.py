"""Seqs of a named writer that one partition remembers, as the writer's session knows them.

The owner told them when the session began; since then the session adds what it has appended
itself. So they are those that the log remembers, except for a session that was deposed.
"""

from collections.abc import Iterable

from geolog.protocol.batch_seqs import BatchSeqs, batch_with, is_left_out_of
from geolog.protocol.partition_state import BATCHES_REMEMBERED


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
        return batch_with(self._batches, seq, _itself) is not None

    def is_left_out(self, seq: int) -> bool:
        """Whether a seq lies in a gap among these batches, so that it was never appended."""
        return is_left_out_of(self._batches, seq, _itself)


def _itself(seqs: BatchSeqs) -> BatchSeqs:
    return seqs
