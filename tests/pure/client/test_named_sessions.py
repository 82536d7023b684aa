"""Sessions of a named writer over a stream with a growing number of partitions (law 16)."""

import random
from contextlib import suppress
from functools import partial

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.partitioner import partition_of_key
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending, RepeatedRecord
from geolog.client.writing.writer_session import open_session
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch, answered
from geolog.partition.repeated_batch import ForgottenSeqError, RepeatedBatch
from geolog.protocol.home_record import Lineage
from geolog.protocol.ids import Sequence
from geolog.protocol.owner_answers import OwnerEnded, Placed, Repeated, answer_of_error
from geolog.protocol.partition_state import FIRST_SEQUENCE, PartitionState, WrittenBatch
from geolog.protocol.session_home import HomeMovedError, SessionHome
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, PartitionName, StreamName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import Batch, SealedBatch, open_batch
from geolog.wire.batch_terms import BatchTerms
from topology.errors import FencedError, GeologError

TILL = "till-7"


@attrs.define(eq=False)
class Sent(SentBatch):
    """A batch that gets no answer; the next session shows which of its records were kept."""

    sealed: SealedBatch
    terms: BatchTerms


class Partition:
    """A partition's log, and an owner of it: the product's decisions without its ledgers."""

    def __init__(self, number: int) -> None:
        self.name = PartitionName(StreamName("a", "b"), number)
        self.opened = Opened(
            None, FIRST_HOME_EPOCH, FIRST_HOME_EPOCH, Lineage(FIRST_HOME_EPOCH)
        )
        self.home_epoch = FIRST_HOME_EPOCH
        self._ended: OwnerEnded | None = None
        self._has_ended = trio.Event()
        self.state = PartitionState()
        self.seqs: list[int] = []
        self.sent: list[Sent] = []
        self._batches: dict[int, Batch] = {}
        self._admission = BatchAdmission(self.name, self.state)
        self.listener: AnswerListener | None = None

    async def wait_ended(self) -> OwnerEnded:
        await self._has_ended.wait()
        assert self._ended is not None
        return self._ended

    def fail(self, failure: GeologError) -> None:
        """End, like an owner that lost the partition."""
        self._ended = OwnerEnded(failure, failure)
        self._has_ended.set()

    def home_epoch_of(self, _segment: int) -> int:
        return FIRST_HOME_EPOCH

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        if fence is not None:
            self._admission.admit_fence(writer_id, fence, self.state)
            self.state.on_fence(writer_id, fence, 0)
        writer = self.state.writer(writer_id)
        return WriterStanding(
            home_epoch=self.home_epoch,
            epoch=writer.epoch,
            seq_highest=writer.seq_highest,
            generations=writer.generations,
            remembered=tuple(one.seqs for one in writer.batches),
        )

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> SentBatch:
        stamp = terms.writer
        assert stamp is not None
        try:
            if self._admission.is_repeat(stamp, self.state):
                writer = self.state.writer(stamp.writer_id)
                repeated = RepeatedBatch(self.name, sealed, stamp, writer, self._read_back)
                return answered(Repeated(repeated))
            self._admission.admit(
                terms, sent=self.state, sequence_next=self.state.sequence_next
            )
        except GeologError as error:
            return answered(answer_of_error(error))
        self.listener = listener
        self.sent.append(Sent(sealed, terms))
        return self.sent[-1]

    def answer(self) -> None:
        """Acknowledge the last batch."""
        self.sent[-1].finish(Placed(1, 0, 0, FIRST_SEQUENCE))
        assert self.listener is not None
        self.listener.on_answers()

    async def _read_back(self, _name: PartitionName, written: WrittenBatch) -> Batch:
        return self._batches[written.entry]

    def end_session(self, kept_count: int) -> None:
        """Keep the first batches, lose the others; another owner follows."""
        for one in self.sent[:kept_count]:
            self._keep(one)
        self.sent = []
        self._admission = BatchAdmission(self.name, self.state)

    def _keep(self, one: Sent) -> None:
        state, stamp, count = self.state, one.terms.writer, one.sealed.record_count
        assert stamp is not None
        first = state.sequence_next
        state.on_entry(
            next_sequence=Sequence(first + count),
            append_time_us=0,
            transaction_id=None,
            batch_bytes=one.sealed.length_bytes,
        )
        batch = WrittenBatch(stamp.seqs, 1, first, 0, first, 0, 0)
        state.on_batch(stamp.writer_id, stamp.epoch, batch, 0, partitions=stamp.partitions)
        self.seqs += stamp.seqs
        self._batches[first] = open_batch(one.sealed.data)


async def a_session(partitions: list[Partition]) -> Writer:
    async def count() -> int:
        return len(partitions)

    session = await open_session(
        TILL,
        partitions,
        home=SessionHome(partitions[0].name.life, FIRST_HOME_EPOCH),
        is_whole=True,
        count_partitions=count,
        rng=random.Random(0),
    )
    return Writer(partitions, WriterConfig(), session=session, home_epoch=1, now_us=lambda: 0)


def seal_all(writer: Writer) -> None:
    for lane in writer.lanes:
        lane.seal()


def key_of(seq: int) -> bytes | None:
    """The key of a record; the same each time the program sends it."""
    return None if seq % 5 == 0 else b"key %d" % (seq % 11)


def numbers_of(first: int, end: int) -> list[int]:
    """The seqs that a program gives its records; it always leaves out the same ones."""
    return [seq for seq in range(first, end) if seq % 9 != 4]


def in_the_log(partitions: list[Partition]) -> list[int]:
    return sorted(seq for one in partitions for seq in one.seqs)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # New partitions.
            st.integers(0, 100),  # Records.
            st.integers(1, 7),  # Approximate records per batch.
            st.lists(st.integers(0, 100), min_size=1, max_size=5),  # Percentage kept.
            st.booleans(),  # Whether the program got the answers.
        ),
        max_size=7,
    )
)
def test_a_program_that_repeats_unanswered_records_appends_each_of_them_once(
    story: list[tuple[int, int, int, list[int], bool]],
) -> None:
    trio.run(partial(repeat_unanswered_records, story))


async def repeat_unanswered_records(
    story: list[tuple[int, int, int, list[int], bool]],
) -> None:
    partitions = [Partition(0)]
    due, end = 0, 0
    for more, count, batch_records, kept, is_told in [*story, (1, 10, 3, [100], True)]:
        partitions += [Partition(len(partitions) + one) for one in range(more)]
        end += count
        writer = await a_session(partitions)
        before = set(in_the_log(partitions))
        repeats: list[tuple[int, Pending]] = []
        for seq in numbers_of(due, end):
            pending = writer.append_nowait(b"%d" % seq, key=key_of(seq), seq=seq)
            if isinstance(pending, RepeatedRecord):
                repeats.append((seq, pending))
            if seq % batch_records == 0:
                seal_all(writer)
        seal_all(writer)
        for seq, pending in repeats:
            assert seq in before
            with suppress(ForgottenSeqError):
                assert (await pending.wait()).duplicate
        for one in partitions:
            one.end_session(len(one.sent) * kept[one.name.number % len(kept)] // 100)
        there = in_the_log(partitions)
        assert len(there) == len(set(there)), "a record is in the log twice"
        if is_told:
            due = next(seq for seq in numbers_of(0, end + 2) if seq not in set(there))

    assert in_the_log(partitions) == numbers_of(0, end)


async def test_records_divided_among_partitions_fill_one_batch_in_each() -> None:
    """Their seqs have gaps: one batch per run of seqs would hold only a record or two."""
    partitions = [Partition(number) for number in range(4)]
    writer = await a_session(partitions)
    for seq in range(1000):
        writer.append_nowait(b"%d" % seq, key=b"key %d" % (seq * 7919 % 100), seq=seq)
    seal_all(writer)

    assert [len(one.sent) for one in partitions] == [1] * 4


async def test_a_seq_lost_from_a_gap_is_appended_to_its_own_partition() -> None:
    """A seq that one partition lost is not a repeat of its neighbours in another."""
    partitions = [Partition(0), Partition(1)]
    writer = await a_session(partitions)
    keys = [
        next(b"%d" % n for n in range(9) if partition_of_key(b"%d" % n, 2) == place)
        for place in range(2)
    ]
    for seq in range(10):
        writer.append_nowait(b"%d" % seq, key=keys[seq % 2], seq=seq)
    seal_all(writer)
    partitions[0].end_session(1)
    partitions[1].end_session(0)

    writer = await a_session(partitions)
    for seq in range(1, 10, 2):
        writer.append_nowait(b"%d" % seq, key=keys[1], seq=seq)
    seal_all(writer)
    partitions[1].end_session(1)
    assert in_the_log(partitions) == list(range(10))


async def test_a_forgotten_seq_is_refused_whatever_the_number_of_partitions() -> None:
    """Only the last 64 batches are remembered, so no lane recognises the first ones."""
    partitions = [Partition(0)]
    writer = await a_session(partitions)
    for seq in range(200):
        writer.append_nowait(b"%d" % seq, key=key_of(seq), seq=seq)
        seal_all(writer)
        partitions[0].answer()
    partitions[0].end_session(200)
    partitions += [Partition(1), Partition(2)]
    writer = await a_session(partitions)

    for seq in range(100):
        pending = writer.append_nowait(b"%d" % seq, key=key_of(seq), seq=seq)
        with pytest.raises(ForgottenSeqError):
            await pending.wait()
        assert writer.is_appended(seq, key=key_of(seq))
    writer.append_nowait(b"new", key=b"k", seq=200)
    seal_all(writer)
    assert len(partitions[partition_of_key(b"k", 3)].sent) == 1


async def test_a_seq_is_refused_only_if_all_partitions_surely_lack_it() -> None:
    """One partition left the seq out, and another has it, or is too far on to tell."""
    partitions = [Partition(0), Partition(1)]
    keys = [
        next(b"%d" % n for n in range(9) if partition_of_key(b"%d" % n, 2) == place)
        for place in range(2)
    ]
    writer = await a_session(partitions)
    for seq in (*range(0, 400, 4), 401):  # Seqs of partition 1: 0, 200 and 401.
        place = int(seq in (0, 200, 401))
        writer.append_nowait(b"%d" % seq, key=keys[place], seq=seq)
        writer.lanes[place].seal()
        partitions[place].answer()
    for one in partitions:
        one.end_session(len(one.sent))
    writer = await a_session(partitions)

    outcomes = {}
    for seq in (4, 6, 199, 201, 399):
        with pytest.raises(ForgottenSeqError) as forgotten:
            await writer.append_nowait(b"", key=keys[1], seq=seq).wait()
        outcomes[seq] = forgotten.value.outcome
    assert outcomes == {
        4: "unknown", 6: "unknown", 199: "refused", 201: "refused", 399: "refused"
    }  # fmt: skip


async def test_a_partition_whose_owner_has_failed_may_have_a_seq_above_its_highest() -> None:
    partitions = [Partition(0), Partition(1)]
    writer = await a_session(partitions)
    keys = {partition_of_key(key, 2): key for key in (b"0", b"1", b"2", b"3", b"4")}
    for seq in (0, 9):
        writer.append_nowait(b"%d" % seq, key=keys[0], seq=seq)
        writer.lanes[0].seal()
        partitions[0].answer()
    partitions[0].end_session(2)
    writer = await a_session(partitions)

    outcomes = []
    for failure in (None, FencedError("another process owns it")):
        if failure is not None:
            partitions[1].fail(failure)
            await writer.lanes[1].run_end_watch()
        with pytest.raises(ForgottenSeqError) as forgotten:
            await writer.append_nowait(b"5", key=keys[0], seq=5).wait()
        outcomes.append(forgotten.value.outcome)
    assert outcomes == ["refused", "unknown"]


async def test_a_session_does_not_begin_in_two_homes() -> None:
    partitions = [Partition(0), Partition(1)]
    partitions[1].home_epoch = 2

    with pytest.raises(HomeMovedError, match="a/b#1 was failed over, in home epoch 2"):
        await a_session(partitions)


def test_a_session_does_not_go_on_in_another_life() -> None:
    home = SessionHome("life-1", FIRST_HOME_EPOCH)
    partition = PartitionName(StreamName("a", "b"), 0, "life-2")

    with pytest.raises(HomeMovedError, match="deleted and created again"):
        home.check(partition, FIRST_HOME_EPOCH)
