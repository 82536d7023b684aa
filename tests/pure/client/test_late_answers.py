"""A lane whose owner is far away: batches and answers travel, and refusals come late."""

import random
from collections import deque

import attrs
import pytest
import trio

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.partitioner import NamedPartitioner
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.batch_in_flight import (
    AnswerListener,
)
from geolog.protocol.ids import Epoch, Sequence
from geolog.protocol.partition_state import FIRST_SEQUENCE, PartitionState
from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from tests.pure.client.fake_sink import a_session
from topology.errors import ConflictError, GeologError

WRONG_SEQUENCE = 1 << 40


@attrs.define(eq=False)
class Travelling:
    """A batch on its way to the owner, or its answer on the way back."""

    sealed: SealedBatch
    terms: BatchTerms
    first_sequence: Sequence = FIRST_SEQUENCE
    segment: int = 1
    entry: int = 0
    verdict: GeologError | None = None
    error: GeologError | None = None
    done: trio.Event = attrs.field(factory=trio.Event)
    received: trio.Event = attrs.field(factory=trio.Event)


class FarOwner:
    """The product's decisions, at the far end of a connection that keeps the order."""

    def __init__(self) -> None:
        self.name = PartitionName(StreamName("a", "b"))
        self.epoch = Epoch(1)
        self.transaction_id: int | None = None
        self.failure: GeologError | None = None
        self.unknown_count = 0
        self.log: list[int] = []
        self.refused_count = 0
        self.going: deque[Travelling] = deque()
        self.coming: deque[Travelling] = deque()
        self.listener: AnswerListener | None = None
        self._state = PartitionState()
        self._admission = BatchAdmission(self.name, self._state)
        self._admission.admit_fence(b"till-7", WriterFence(1, 77), self._state)

    async def wait_failed(self) -> None:
        await trio.sleep_forever()

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        raise AssertionError("the test makes its session")

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> Travelling:
        self.listener = listener
        self.going.append(Travelling(sealed, terms))
        return self.going[-1]

    def deliver(self) -> None:
        """The next batch arrives, and is decided."""
        one = self.going.popleft()
        stamp = one.terms.writer
        assert stamp is not None
        try:
            assert not self._admission.is_repeat(stamp, self._state)
            self._admission.admit(one.terms, sequence_next=len(self.log))
        except GeologError as error:
            one.verdict = error
            self.refused_count += 1
        else:
            one.first_sequence = Sequence(len(self.log))
            self.log += stamp.seqs
        self.coming.append(one)

    def tell(self) -> None:
        """The next answer arrives."""
        one = self.coming.popleft()
        one.error = one.verdict
        one.done.set()
        one.received.set()
        assert self.listener is not None
        self.listener.on_answers()


@attrs.define
class Program:
    """Appends numbered records; after a refusal it hears all answers, then goes on there."""

    rng: random.Random
    owner: FarOwner
    writer: Writer
    wishes_share: float
    in_flight: deque[tuple[int, Pending]] = attrs.field(factory=deque)
    seq_next: int = 0
    is_stopped: bool = False
    """Whether it waits for the answers behind a refusal."""

    def append(self) -> None:
        expected = WRONG_SEQUENCE if self.rng.random() < self.wishes_share else None
        try:
            pending = self.writer.append_nowait(
                b"%d" % self.seq_next, seq=self.seq_next, expect_sequence=expected
            )
        except trio.WouldBlock:
            return
        self.in_flight.append((self.seq_next, pending))
        self.seq_next += 1

    def hear(self) -> None:
        """Take the answers that have arrived, in order."""
        while self.in_flight and self.in_flight[0][1].is_done:
            seq, pending = self.in_flight.popleft()
            try:
                receipt = pending.receipt_nowait()
            except ConflictError:
                if not self.is_stopped:
                    self.is_stopped, self.seq_next = True, seq
            else:
                assert not self.is_stopped, "a record behind a refused one got in"
                assert self.owner.log[receipt.sequence] == seq
        if not self.in_flight:
            self.is_stopped = False

    def take_step(self, *, count: int) -> None:
        steps = [self.writer.lanes[0].seal]
        if not self.is_stopped and self.seq_next < count:
            steps += [self.append] * 4
        if self.owner.going:
            steps += [self.owner.deliver] * 3
        if self.owner.coming:
            steps += [self.owner.tell] * 3
        self.rng.choice(steps)()
        self.hear()


@pytest.mark.parametrize("seed", range(60))
async def test_records_get_in_once_and_in_order_however_late_refusals_come(seed: int) -> None:
    rng = random.Random(seed)
    owner = FarOwner()
    writer = Writer(
        [owner], WriterConfig(), session=a_session(), home_epoch=1, now_us=lambda: 0
    )
    program = Program(rng, owner, writer, wishes_share=rng.choice((0.02, 0.2)))
    count = rng.randint(1, 150)
    for step in range(40_000):
        if step == 20_000:
            program.wishes_share = 0.0
        program.take_step(count=count)
        if owner.log == list(range(count)) and not program.in_flight:
            break

    assert owner.log == list(range(count))
    assert writer.seq_highest == count - 1
    assert writer.statistics().in_flight_bytes == 0


async def test_an_open_batch_behind_a_refused_one_is_refused_with_it() -> None:
    owner = FarOwner()
    writer = Writer(
        [owner], WriterConfig(), session=a_session(), home_epoch=1, now_us=lambda: 0
    )
    refused = writer.append_nowait(b"0", seq=0, expect_sequence=WRONG_SEQUENCE)
    writer.lanes[0].seal()
    behind = writer.append_nowait(b"1", seq=1)
    owner.deliver()
    owner.tell()

    for one, words in ((refused, "expects sequence"), (behind, "append it again before seq 1")):
        with pytest.raises(ConflictError, match=words):
            one.receipt_nowait()
    assert writer.seq_highest == -1
    writer.append_nowait(b"0", seq=0)


async def test_a_lane_goes_on_after_a_refused_seq_that_its_writer_never_uses_again() -> None:
    owners = [FarOwner(), FarOwner()]
    writer = Writer(
        owners, WriterConfig(), session=a_session(2), home_epoch=1, now_us=lambda: 0
    )
    partitioner = NamedPartitioner(b"till-7", [(), ()], 2)
    keys = {partitioner.partition_of(key, 0): key for key in (b"a", b"b", b"c", b"d")}
    refused = writer.append_nowait(b"0", key=keys[0], expect_sequence=WRONG_SEQUENCE)
    writer.append_nowait(b"1", key=keys[1])
    for lane, owner in zip(writer.lanes, owners, strict=True):
        lane.seal()
        owner.deliver()
        owner.tell()
    with pytest.raises(ConflictError, match="expects sequence"):
        refused.receipt_nowait()

    later = writer.append_nowait(b"2", key=keys[0])
    writer.lanes[0].seal()
    owners[0].deliver()
    owners[0].tell()

    assert later.receipt_nowait().sequence == 0
    assert (owners[0].log, owners[1].log) == ([2], [1])
