"""A lane whose owner is far away: batches and answers travel, and refusals come late."""

import random
from collections import deque
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.partitioner import NamedPartitioner
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch
from geolog.protocol.home_record import Lineage
from geolog.protocol.ids import Sequence
from geolog.protocol.owner_answers import OwnerEnded, Placed, Unknown, answer_of_error
from geolog.protocol.partition_state import FIRST_SEQUENCE, PartitionState, WrittenBatch
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, PartitionName, StreamName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch, open_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from tests.pure.client.fake_sink import FakeSink, a_session
from tests.pure.thinned import sampled
from topology.errors import ConflictError, GeologError, OutcomeUnknownError

WRONG_SEQUENCE = 1 << 40


@attrs.define(eq=False)
class Travelling(SentBatch):
    """A batch on its way to the owner, or its answer on the way back."""

    sealed: SealedBatch
    terms: BatchTerms
    first_sequence: Sequence = FIRST_SEQUENCE
    verdict: GeologError | None = None


class FarOwner:
    """The product's decisions, at the far end of a connection that keeps the order."""

    def __init__(self, *, unread: Callable[[], bool] = lambda: False) -> None:
        """`unread`: whether a repeat cannot be compared when it arrives."""
        self._unread = unread
        self.name = PartitionName(StreamName("a", "b"))
        self.opened = Opened(
            None, FIRST_HOME_EPOCH, FIRST_HOME_EPOCH, Lineage(FIRST_HOME_EPOCH)
        )
        self.log: list[int] = []
        self.values: list[bytes] = []
        self.refused_count = 0
        self.going: deque[Travelling] = deque()
        self.coming: deque[Travelling] = deque()
        self.listener: AnswerListener | None = None
        self._state = PartitionState()
        self._admission = BatchAdmission(self.name, self._state)
        self._state.on_fence(b"till-7", WriterFence(1, 77), 0)

    async def wait_ended(self) -> OwnerEnded:
        await trio.sleep_forever()
        raise AssertionError

    def home_epoch_of(self, _segment: int) -> int:
        return FIRST_HOME_EPOCH

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
            if self._admission.is_repeat(stamp, self._state):
                one.first_sequence = self._place_of_repeat(one)
                if self._unread():
                    one.verdict = OutcomeUnknownError("the log has it, and cannot read it now")
            else:
                self._admission.admit(one.terms, sent=self._state, sequence_next=len(self.log))
                self._add(one, stamp)
        except GeologError as error:
            one.verdict = error
            self.refused_count += 1
        self.coming.append(one)

    def _add(self, one: Travelling, stamp: WriterStamp) -> None:
        one.first_sequence = Sequence(len(self.log))
        self.log += stamp.seqs
        self.values += _values_of(one.sealed)
        batch = WrittenBatch(stamp.seqs, 1, 0, 0, one.first_sequence, 0, 0)
        self._state.on_batch(stamp.writer_id, stamp.epoch, batch, 0, partitions=0)

    def _place_of_repeat(self, one: Travelling) -> Sequence:
        assert one.terms.writer is not None
        seqs, values = list(one.terms.writer.seqs), _values_of(one.sealed)
        if seqs[0] not in self.log:
            raise ConflictError(f"seq {seqs[0]} was left out")
        first = self.log.index(seqs[0])
        end = first + len(seqs)
        if (self.log[first:end], self.values[first:end]) != (seqs, values):
            raise ConflictError(f"seq {seqs[0]} was appended before with different bytes")
        return Sequence(first)

    def change(self) -> None:
        """Another owner: answers on their way are lost, and their batches sent again first."""
        self.going = deque([*self.coming, *self.going])
        self.coming.clear()
        for one in self.going:
            one.verdict = None
        self._admission = BatchAdmission(self.name, self._state)

    def tell(self) -> None:
        """The next answer arrives."""
        one = self.coming.popleft()
        one.finish(
            Placed(1, 0, 0, one.first_sequence)
            if one.verdict is None
            else answer_of_error(one.verdict)
        )
        assert self.listener is not None
        self.listener.on_answers()


def _values_of(sealed: SealedBatch) -> list[bytes]:
    batch = open_batch(sealed.data)
    return [batch.value(row) for row in range(sealed.record_count)]


@attrs.define
class Program:
    """Appends numbered records; after a refusal it hears all answers, then goes on there."""

    rng: random.Random
    owner: FarOwner
    writer: Writer
    wishes_share: float
    changes_share: float
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
        if self.rng.random() < self.changes_share:
            steps = [self.owner.change]
        self.rng.choice(steps)()
        self.hear()


@pytest.mark.parametrize("seed", sampled(range(60), one_in=3))
async def test_records_get_in_once_and_in_order_however_late_refusals_come(seed: int) -> None:
    rng = random.Random(seed)
    owner = FarOwner()
    writer = Writer(
        [owner], WriterConfig(), session=a_session(), home_epoch=1, now_us=lambda: 0
    )
    program = Program(
        rng,
        owner,
        writer,
        wishes_share=rng.choice((0.02, 0.2)),
        changes_share=rng.choice((0.0, 0.03)),
    )
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


@attrs.define
class Sent:
    """A record that a session has numbered itself, and those it was sent behind."""

    value: bytes
    pending: Pending
    behind: list["Sent"]
    """Records sent before it that its session did not know then to be refused, or appended."""
    verdict: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether its session knows that it is refused, or will be."""
        return self.verdict == "refused" or any(one.verdict == "refused" for one in self.behind)

    def hear(self, owner: FarOwner) -> None:
        """Take the answer if it has come."""
        if self.verdict is not None or not self.pending.is_done:
            return
        try:
            sequence = self.pending.receipt_nowait().sequence
        except ConflictError:
            self.verdict = "refused"
        except OutcomeUnknownError:
            self.verdict = "appended"  # This owner knows at least that.
        else:
            assert owner.values[sequence] == self.value
            self.verdict = "appended"


@pytest.mark.parametrize("seed", sampled(range(100), one_in=3))
async def test_whatever_owner_answers_no_record_gets_in_behind_a_refused_one(seed: int) -> None:
    """A list of all records, and of those without an answer then, says what may be there."""
    rng = random.Random(seed)
    unread_share = rng.choice((0.0, 0.5))
    owner = FarOwner(unread=lambda: rng.random() < unread_share)
    writer = Writer(
        [owner], WriterConfig(), session=a_session(), home_epoch=1, now_us=lambda: 0
    )
    wishes_share, changes_share = rng.choice((0.05, 0.3)), rng.choice((0.02, 0.1))
    sent: list[Sent] = []

    def append() -> None:
        value = rng.choice((b"same", b"%d" % len(sent)))
        expected = WRONG_SEQUENCE if rng.random() < wishes_share else None
        behind = [one for one in sent if one.verdict is None and not one.is_lost]
        try:
            pending = writer.append_nowait(value, expect_sequence=expected)
        except trio.WouldBlock:
            return
        sent.append(Sent(value, pending, behind))

    for step in range(600):
        steps = [writer.lanes[0].seal] + [append] * (4 if step < 400 else 0)
        steps += [owner.deliver] * (3 if owner.going else 0)
        steps += [owner.tell] * (2 if owner.coming else 0)
        rng.choice([owner.change] if rng.random() < changes_share else steps)()
        for one in sent:
            one.hear(owner)
    while owner.going or owner.coming or writer.lanes[0].in_flight_bytes:
        for ready, act in ((True, writer.lanes[0].seal), (owner.going, owner.deliver)):
            if ready:
                act()
        if owner.coming:
            owner.tell()
    for one in sent:
        one.hear(owner)

    assert owner.values == [one.value for one in sent if one.verdict == "appended"]
    for one in sent:
        if any(each.verdict == "refused" for each in one.behind):
            assert one.verdict == "refused"


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


async def test_seqs_of_an_unknown_batch_are_not_given_to_other_records(
    autojump_clock: MockClock,
) -> None:
    """Its owner goes on: it was asked again, and could not read what the log has."""
    sink = FakeSink()
    writer = Writer([sink], WriterConfig(), session=a_session(), home_epoch=1, now_us=lambda: 0)
    first = writer.append_nowait(b"one")
    writer.append_nowait(b"two")
    writer.lanes[0].seal()
    sink.answer(answer=Unknown(OutcomeUnknownError("they cannot be compared now")))
    writer.append_nowait(b"three")
    writer.lanes[0].seal()

    stamps = [one.terms.writer for one in sink.taken]
    with pytest.raises(OutcomeUnknownError):
        first.receipt_nowait()
    assert [stamp and list(stamp.seqs) for stamp in stamps] == [[0, 1], [2]]
