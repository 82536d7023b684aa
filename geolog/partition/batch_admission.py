"""Deciding whether a partition accepts a batch: its terms against the partition's state.

A batch is accepted or refused as a whole; nothing of a refused batch is in the log.

Rules: PROTOCOL S11 and S19.
"""

from geolog.partition.batch_in_flight import BatchTerms
from geolog.protocol.partition_state import PartitionState, Repeat
from geolog.protocol.stream_state import PartitionName
from geolog.wire.entry import WriterStamp
from topology.errors import ConflictError, FencedError


class BatchAdmission:
    """Judges batches in the order in which they come, and remembers those that it accepted."""

    def __init__(self, name: PartitionName, state: PartitionState) -> None:
        self._name = name
        self._transaction_id = state.transaction_id  # The highest accepted so far.
        self._seqs: dict[bytes, int] = {}  # The highest of each writer, since this owner began.

    def __repr__(self) -> str:
        return f"BatchAdmission({self._name}, {len(self._seqs)} writers)"

    def admit(self, terms: BatchTerms, *, sequence_next: int, sent: PartitionState) -> None:
        """Accept a batch that would begin at `sequence_next`. ConflictError, FencedError.

        sent: the partition after everything that was sent.
        """
        expected, first = terms.expect_sequence, terms.transaction_first
        if expected is not None and expected != sequence_next:
            raise ConflictError(
                f"{self._name}: the append expects sequence {expected}, but the next one is"
                f" {sequence_next}"
            )
        highest = self._transaction_id
        if first is not None and highest is not None and first < highest:
            raise ConflictError(
                f"transaction id {first} is too low: {self._name} already has {highest}"
            )
        if terms.writer is not None:
            self._check_writer(terms.writer, sent)
            self._seqs[terms.writer.writer_id] = terms.writer.seqs.last
        if terms.transaction_last is not None:
            self._transaction_id = terms.transaction_last

    def _check_writer(self, stamp: WriterStamp, sent: PartitionState) -> None:
        writer_id = stamp.writer_id
        judged = sent.judge(writer_id, stamp.epoch, stamp.seqs)
        if judged is Repeat.DEPOSED:
            deposed = FencedError(
                f"a newer session of writer {writer_id.decode()!r} has written since"
            )
            deposed.outcome = "unknown"  # That session may have appended these.
            raise deposed
        highest = max(sent.writer(writer_id).seq_highest, self._seqs.get(writer_id, -1))
        first = stamp.seqs.first
        if first <= highest:
            repeated = ConflictError(
                f"seq {first} is too low: writer {writer_id.decode()!r} has already appended"
                f" seq {highest}"
            )
            repeated.outcome = "unknown"
            raise repeated
