"""Batches and fences that a partition accepts: judged against a plain list of what it took."""

import random

import attrs
import pytest

from geolog.partition.batch_admission import BatchAdmission, FenceRefusedError
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from tests.pure.thinned import sampled
from topology.errors import ConflictError, FencedError, GeologError

NAME = PartitionName(StreamName("a", "b"))
WRITERS = (b"a", b"b")


@attrs.define
class Taken:
    """An entry that a naive partition has accepted: a fence, or a batch of one writer."""

    writer_id: bytes
    fence: WriterFence | None = None
    stamp: WriterStamp | None = None


@attrs.define
class Naive:
    """Judges by looking through everything that it has taken."""

    taken: list[Taken] = attrs.field(factory=list)

    def session(self, writer_id: bytes) -> WriterFence:
        fences = [one.fence for one in self.taken if one.writer_id == writer_id and one.fence]
        return fences[-1] if fences else WriterFence(0, 0)

    def seqs(self, writer_id: bytes) -> set[int]:
        return {
            seq
            for one in self.taken
            if one.writer_id == writer_id and one.stamp is not None
            for seq in one.stamp.seqs
        }

    def take_fence(self, writer_id: bytes, fence: WriterFence) -> bool:
        known = self.session(writer_id)
        if fence.epoch <= known.epoch and fence != known:
            return False
        self.taken.append(Taken(writer_id, fence=fence))
        return True

    def verdict(self, stamp: WriterStamp, before: int | None, *, is_wish_met: bool) -> str:
        if stamp.epoch != self.session(stamp.writer_id).epoch:
            return "fenced"
        if any(seq >= stamp.seqs.first for seq in self.seqs(stamp.writer_id)):
            return "repeat"
        is_behind = before is not None and before > max(self.seqs(stamp.writer_id), default=-1)
        if is_behind or not is_wish_met:
            return "refused"
        self.taken.append(Taken(stamp.writer_id, stamp=stamp))
        return "new"


@attrs.define
class Partition:
    """The admission, with the state after a part of what it accepted."""

    state: PartitionState = attrs.field(factory=PartitionState)
    waiting: list[Taken] = attrs.field(factory=list)
    admission: BatchAdmission = attrs.field(
        default=attrs.Factory(lambda self: BatchAdmission(NAME, self.state), takes_self=True)
    )

    def take_fence(self, writer_id: bytes, fence: WriterFence) -> bool:
        try:
            self.admission.admit_fence(writer_id, fence, self.state)
        except FenceRefusedError as error:
            return error.epoch < fence.epoch
        self.waiting.append(Taken(writer_id, fence=fence))
        return True

    def verdict(self, stamp: WriterStamp, before: int | None, *, is_wish_met: bool) -> str:
        expected = None if is_wish_met else 1 << 40
        try:
            if self.admission.is_repeat(stamp, self.state):
                return "repeat"
            self.admission.admit(
                BatchTerms(writer=stamp, expect_sequence=expected, seq_before=before),
                sent=self.state,
                sequence_next=0,
            )
        except FencedError:
            return "fenced"
        except ConflictError:
            return "refused"
        self.waiting.append(Taken(stamp.writer_id, stamp=stamp))
        return "new"

    def send(self, count: int) -> None:
        """Send what was accepted first."""
        for one in self.waiting[:count]:
            if one.fence is not None:
                self.state.on_fence(one.writer_id, one.fence, 0)
            elif one.stamp is not None:
                written = WrittenBatch(one.stamp.seqs, 1, 0, 0, Sequence(0), 0, 0)
                epoch = one.stamp.epoch
                self.state.on_batch(one.writer_id, epoch, written, 0, partitions=1)
        del self.waiting[:count]

    def change_owner(self) -> None:
        """Another owner, which finds everything in the log."""
        self.send(len(self.waiting))
        self.admission = BatchAdmission(NAME, self.state)


@pytest.mark.parametrize("seed", sampled(range(200), one_in=4))
def test_a_partition_takes_what_a_naive_one_takes(seed: int) -> None:
    rng = random.Random(seed)
    partition, naive = Partition(), Naive()
    for _ in range(200):
        partition.send(rng.randrange(3))
        writer_id = rng.choice(WRITERS)
        known = naive.session(writer_id)
        if rng.random() < 0.15:
            fence = WriterFence(max(0, known.epoch + rng.randint(-1, 1)), rng.randint(1, 2))
            assert partition.take_fence(writer_id, fence) == naive.take_fence(writer_id, fence)
        elif rng.random() < 0.03:
            partition.change_owner()
        else:
            highest = max(naive.seqs(writer_id), default=-1)
            first = max(0, highest + rng.choice((1, 1, 1, 2, 3, 0, -1)))
            epoch = max(0, known.epoch + rng.choice((0, 0, 0, 0, -1, 1)))
            stamp = WriterStamp(writer_id, epoch, BatchSeqs(first, rng.randint(1, 3)), 1)
            is_wish_met = rng.random() < 0.9
            before = rng.choice((None, highest, first - 1))
            found = partition.verdict(stamp, before, is_wish_met=is_wish_met)
            assert found == naive.verdict(stamp, before, is_wish_met=is_wish_met)


def outcome_of(admission: BatchAdmission, epoch: int) -> str:
    stamp = WriterStamp(b"a", epoch, BatchSeqs(5, 1))
    with pytest.raises(GeologError) as refused:
        admission.is_repeat(stamp, PartitionState())
    return refused.value.outcome


def test_another_session_may_have_appended_the_records_of_a_fenced_one() -> None:
    admission = BatchAdmission(NAME, PartitionState())
    admission.admit_fence(b"a", WriterFence(2, 7), PartitionState())

    assert [outcome_of(admission, epoch) for epoch in (1, 3)] == ["unknown", "unknown"]


def ids(first: int, last: int) -> BatchTerms:
    return BatchTerms(transaction_first=first, transaction_last=last)


def test_transaction_ids_never_fall_whether_acknowledged_or_not() -> None:
    state = PartitionState(transaction_id=5)
    admission = BatchAdmission(NAME, state)
    with pytest.raises(ConflictError, match="transaction id 4 is too low"):
        admission.admit(ids(4, 9), sent=state, sequence_next=0)
    admission.admit(ids(5, 9), sent=state, sequence_next=0)
    with pytest.raises(ConflictError, match="already has 9"):
        admission.admit(ids(8, 8), sent=state, sequence_next=1)


def test_the_next_session_of_a_forgotten_writer_begins_without_seqs() -> None:
    state = PartitionState()
    admission = BatchAdmission(NAME, state)
    admission.admit_fence(b"a", WriterFence(1, 7), state)
    state.on_fence(b"a", WriterFence(1, 7), 100)
    old = WriterStamp(b"a", 1, BatchSeqs(5, 1))
    admission.admit(BatchTerms(writer=old), sent=state, sequence_next=0)
    admission.forget(state.forget_idle(200, trimmed_before=1))
    with pytest.raises(FencedError, match="open it again"):
        admission.is_repeat(old, state)
    admission.admit_fence(b"a", WriterFence(1, 8), state)
    state.on_fence(b"a", WriterFence(1, 8), 300)

    assert not admission.is_repeat(WriterStamp(b"a", 1, BatchSeqs(0, 1)), state)
