"""Deciding whether a partition accepts a batch, or a writer's fence: against its state.

A batch is accepted or refused as a whole; nothing of a refused batch is in the log.

Theory of operation. The answers come in order, but a session sends on without waiting for them.
If one of its batches is refused, those behind it must not get in: its records would be out of
order, and the refused seq, now below the highest, could never be appended. The owner keeps no
list of refusals, which would go with it. Instead, each batch tells the seq before it: the last
seq that its session sent earlier and does not know to be refused. A batch is refused while the
highest accepted seq of its writer is lower than that.

Claim: if a batch N is accepted, so is each batch P that its session sent to the partition
earlier and did not know to be refused.

- Let P be the last of them. N tells the last seq of P, so some accepted batch Q is as high.
- Q is of the same session: a fence is behind all batches of older sessions, and a session
  numbers its records above all that it was told in answer to its fence.
- Q was not sent before P. Seqs rise from batch to batch unless the session hears of a refusal,
  and then it uses again only seqs of batches that were refused, which Q was not.
- Q was not sent after N. It would be higher than N, which is then a repeat and not new; or the
  session heard of a refusal between. It would then have waited for the answer to N (below).
- So Q is P, or was sent between P and N, while the session did not know of a refusal of P. By
  induction over the batches of the session, P was accepted when Q was.

Any owner may have accepted P, if each begins with everything that the log acknowledged, and a
session sends its batches without an answer again in the same order. The claim also needs the
session to send nothing after a refusal until the batches behind that are answered. Otherwise
their seqs, used again, could let a batch in that was sent again and that the session counts as
refused.

A session that numbers its records itself may leave a refused seq out once it has heard. If the
application chose the seqs, the session goes on to tell the refused one, so it must come again.

Acceptance decides, not acknowledgement: as soon as a fence is accepted, no
batch of an older session is. A session appends only where it has fenced, so a batch of an epoch
that the partition does not know comes from a session that has been forgotten.

Rules: PROTOCOL H26, S7, S9, S11, S19 and S22.
"""

from collections.abc import Iterable

from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.writer_fence import may_fence
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch_terms import BatchTerms, local_only_with_transaction
from geolog.wire.entry import WriterStamp
from topology.errors import ConflictError, FencedError, InvalidArgumentError


class FenceRefusedError(FencedError):
    """Another session of the writer has begun: `epoch` is its epoch in this partition."""

    def __init__(self, message: str, *, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class SkippedSeqError(ConflictError):
    """A batch that its session sent earlier was refused: that one must come first."""


class BatchAdmission:
    """Judges batches and fences in the order in which they come; remembers the accepted."""

    def __init__(
        self, name: PartitionName, state: PartitionState, *, has_home: bool = True
    ) -> None:
        """has_home: whether the stream is `regional`."""
        self._name = name
        self._has_home = has_home
        self._transaction_id = state.transaction_id  # The highest accepted so far.
        # Of each writer, since this owner began.
        self._seqs: dict[bytes, int] = {}  # The highest.
        self._sessions: dict[bytes, WriterFence] = {}

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

    def forget(self, writer_ids: Iterable[bytes]) -> None:
        """Forget writers that the partition has forgotten, and that have nothing in flight.

        Else their next session, which begins without seqs, would find its own taken.
        """
        for writer_id in writer_ids:
            self._seqs.pop(writer_id, None)
            self._sessions.pop(writer_id, None)

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

    def admit(self, terms: BatchTerms, *, sent: PartitionState, sequence_next: int) -> None:
        """Accept a batch, not a repeat, that would begin at `sequence_next`.

        ConflictError; SkippedSeqError if one before it was refused.
        """
        stamp = terms.writer
        if stamp is not None:
            self._check_seq_before(stamp, terms.seq_before, sent)
        self._check(terms, sequence_next)
        if stamp is not None:
            self._seqs[stamp.writer_id] = stamp.seqs.last
        if terms.transaction_last is not None:
            self._transaction_id = terms.transaction_last

    def _check_seq_before(
        self, stamp: WriterStamp, seq_before: int | None, sent: PartitionState
    ) -> None:
        if seq_before is not None and seq_before > self._seq_highest(stamp.writer_id, sent):
            raise SkippedSeqError(
                f"seq {seq_before} was refused: append it again before seq {stamp.seqs.first}"
            )

    def _check(self, terms: BatchTerms, sequence_next: int) -> None:
        expected, first = terms.expect_sequence, terms.transaction_first
        if terms.is_local_only and not self._has_home:
            raise InvalidArgumentError(
                f"{self._name} is global: its records lie in several regions, so none can be"
                " local-only. Append it to a regional stream"
            )
        if terms.is_local_only and first is not None:
            raise local_only_with_transaction(first)
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
