"""Deciding whether a partition accepts a batch, or a writer's fence: against its state.

A batch is accepted or refused as a whole; nothing of a refused batch is in the log.

Theory of operation. The answers come in order, but a session sends on without waiting for them.
If one of its batches is refused, those behind it must not get in: its records would be out of
order, and the refused seq, now below the highest, could never be appended. So they are refused
too, until the refused seq comes again. A session that numbers its records itself may leave the
seq out once it has heard of the refusal: each of its batches tells the seq before it.

Acceptance decides, not acknowledgement: as soon as a fence is accepted, no
batch of an older session is. A session appends only where it has fenced, so a batch of an epoch
that the partition does not know comes from a session that has been forgotten.

Rules: PROTOCOL S7, S11, S19 and S22.
"""

from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.writer_fence import may_fence
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from topology.errors import ConflictError, FencedError, GeologError


class FenceRefusedError(FencedError):
    """Another session of the writer has begun: `epoch` is its epoch in this partition."""

    def __init__(self, message: str, *, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class BatchAdmission:
    """Judges batches and fences in the order in which they come; remembers the accepted."""

    def __init__(self, name: PartitionName, state: PartitionState) -> None:
        self._name = name
        self._transaction_id = state.transaction_id  # The highest accepted so far.
        # Of each writer, since this owner began.
        self._seqs: dict[bytes, int] = {}  # The highest.
        self._sessions: dict[bytes, WriterFence] = {}
        self._refused: dict[bytes, int] = {}  # Batches sent behind it are refused, too.

    def __repr__(self) -> str:
        return f"BatchAdmission({self._name}, {len(self._seqs)} writers)"

    def session_of(self, writer_id: bytes, sent: PartitionState) -> WriterFence:
        """The newest session of a writer that began here.

        sent: the partition after everything that was sent.
        """
        accepted = self._sessions.get(writer_id)
        if accepted is not None:
            return accepted
        writer = sent.writer(writer_id)
        return WriterFence(writer.epoch, writer.nonce)

    def admit_fence(self, writer_id: bytes, fence: WriterFence, sent: PartitionState) -> None:
        """Accept the fence of a writer's session. FenceRefusedError."""
        known = self.session_of(writer_id, sent)
        if not may_fence(known.epoch, known.nonce, fence.epoch, fence.nonce):
            raise FenceRefusedError(
                f"{self._name} has another session of writer {writer_id.decode()!r}, at epoch"
                f" {known.epoch}",
                epoch=known.epoch,
            )
        self._sessions[writer_id] = fence
        if fence != known:
            self._refused.pop(writer_id, None)

    def is_repeat(self, stamp: WriterStamp, sent: PartitionState) -> bool:
        """Whether a seq as high as the batch's first was accepted before. FencedError."""
        self._check_session(stamp, sent)
        return stamp.seqs.first <= self._seq_highest(stamp.writer_id, sent)

    def _seq_highest(self, writer_id: bytes, sent: PartitionState) -> int:
        return max(sent.writer(writer_id).seq_highest, self._seqs.get(writer_id, -1))

    def _check_session(self, stamp: WriterStamp, sent: PartitionState) -> None:
        epoch = self.session_of(stamp.writer_id, sent).epoch
        if stamp.epoch == epoch:
            return
        who = f"writer {stamp.writer_id.decode()!r}"
        why = (
            f"a newer session of {who} has begun since"
            if stamp.epoch < epoch
            else f"{self._name} does not know this session of {who} any more: open it again"
        )
        deposed = FencedError(why)
        deposed.outcome = "unknown"  # Another session may have appended these.
        raise deposed

    def admit(self, terms: BatchTerms, *, sequence_next: int) -> None:
        """Accept a batch, not a repeat, that would begin at `sequence_next`. ConflictError."""
        stamp = terms.writer
        try:
            if stamp is not None:
                self._check_refused(stamp, terms.seq_before)
            self._check(terms, sequence_next)
        except GeologError:
            if stamp is not None:
                refused = self._refused.get(stamp.writer_id, stamp.seqs.first)
                self._refused[stamp.writer_id] = min(refused, stamp.seqs.first)
            raise
        if stamp is not None:
            self._refused.pop(stamp.writer_id, None)
            self._seqs[stamp.writer_id] = stamp.seqs.last
        if terms.transaction_last is not None:
            self._transaction_id = terms.transaction_last

    def _check_refused(self, stamp: WriterStamp, seq_before: int | None) -> None:
        refused = self._refused.get(stamp.writer_id)
        if refused is None or stamp.seqs.first <= refused:
            return
        if seq_before is None or seq_before >= refused:
            raise ConflictError(
                f"seq {refused} was refused: append it again before seq {stamp.seqs.first}"
            )

    def _check(self, terms: BatchTerms, sequence_next: int) -> None:
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
