"""Sessions of named writers at the owner: fences in the log, and batches judged by them."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.batch_admission import FenceRefusedError
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.owner_answers import AppendRefused, OwnerEnded, Placed, Repeated, Unknown
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from tests.pure.whole.clusters import REGIONS, STREAM, ended_by, open_world, values_of

TILL = b"till-7"
FIRST = WriterFence(1, 77)


@attrs.frozen
class Session:
    """A session that speaks to one owner directly, as a proxy would for its client."""

    owner: PartitionWriter
    epoch: int

    def send(
        self,
        *values: bytes,
        seq: int,
        seq_before: int | None = None,
        expect_sequence: int | None = None,
    ) -> SentBatch:
        """Send records with these values, numbered from `seq`. Raises a refusal."""
        stamp = WriterStamp(TILL, self.epoch, BatchSeqs(seq, len(values)), 1)
        terms = BatchTerms(writer=stamp, seq_before=seq_before, expect_sequence=expect_sequence)
        sent = self.owner.append(seal_batch(list(values), created_us=1), terms)
        if isinstance(sent.answer, AppendRefused | Unknown | OwnerEnded):
            raise sent.answer.error
        return sent

    async def append(self, *values: bytes, seq: int) -> Placed:
        """Send records, and wait for their place."""
        sent = self.send(*values, seq=seq)
        await sent.done.wait()
        assert isinstance(sent.answer, Placed)
        return sent.answer


@asynccontextmanager
async def open_owner(log: geolog.Log) -> AsyncIterator[PartitionWriter]:
    """Own the stream's only partition."""
    async with log.open_writer(STREAM) as writer:
        sink: object = writer.lanes[0].sink
        assert isinstance(sink, PartitionWriter)
        yield sink


async def begin(owner: PartitionWriter, fence: WriterFence = FIRST) -> Session:
    """Begin a session of the writer."""
    standing = await owner.hello(TILL, fence)
    assert standing.epoch == fence.epoch
    return Session(owner, fence.epoch)


async def test_an_equal_epoch_with_another_nonce_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        await begin(owner)
        for other in (WriterFence(1, 78), WriterFence(0, 77)):
            with pytest.raises(FenceRefusedError) as refused:
                await owner.hello(TILL, other)
            assert refused.value.epoch == 1
        await begin(owner, WriterFence(2, 77))


async def test_a_fence_survives_a_change_of_owner_before_any_batch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            await begin(owner, WriterFence(5, 77))
        for _ in range(2):  # The second finds an empty ledger behind that with the fence.
            async with open_owner(world.log) as owner:
                assert (await owner.hello(TILL, None)).epoch == 5
                with pytest.raises(FenceRefusedError):
                    await owner.hello(TILL, WriterFence(5, 78))
                with pytest.raises(geolog.FencedError, match="a newer session"):
                    Session(owner, 4).send(b"late", seq=0)


def die() -> None:
    """End the block of an owner without closing its ledger."""
    raise ZeroDivisionError


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_lost_answer_of_a_fence_is_asked_for_again_at_the_next_owner(
    *, is_stored: bool, autojump_clock: MockClock
) -> None:
    """Its session cannot know whether the log holds the fence, and sends the same again."""
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            async with open_owner(world.log) as owner:
                for region in () if is_stored else REGIONS:
                    await world.cluster.kill_region(region)
                with trio.move_on_after(0) as patience:
                    await owner.hello(TILL, FIRST)
                assert patience.cancelled_caught, "it is answered once the log holds it"
                die()
        for region in () if is_stored else REGIONS:
            await world.cluster.restart_region(region)
        async with open_owner(world.log) as owner:
            assert (await owner.hello(TILL, None)).epoch == int(is_stored)
            session = await begin(owner)
            await session.append(b"one", seq=0)
            with pytest.raises(FenceRefusedError):
                await owner.hello(TILL, WriterFence(1, 78))


async def test_the_batches_in_flight_of_an_older_session_are_before_the_fence(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        older = await begin(owner)
        sent = older.send(b"one", b"two", seq=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(begin, owner, WriterFence(2, 78)))
            await trio.testing.wait_all_tasks_blocked()
            assert not sent.done.is_set()
            assert (await owner.hello(TILL, None)).epoch == 2, "accepted counts"
            with pytest.raises(geolog.FencedError, match="a newer session"):
                older.send(b"three", seq=2)
        standing = await owner.hello(TILL, WriterFence(2, 78))
        assert sent.done.is_set()
        assert (standing.seq_highest, standing.remembered) == (1, (BatchSeqs(0, 2),))


async def test_a_batch_of_a_session_that_never_began_here_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_owner(world.log) as owner:
        await begin(owner)
        with pytest.raises(geolog.FencedError, match="does not know this session") as refused:
            Session(owner, 2).send(b"one", seq=0)
        assert refused.value.outcome == "unknown"


async def test_a_fence_moves_on_to_the_next_ledger_with_the_batches(
    autojump_clock: MockClock,
) -> None:
    """A failover closes the ledger at its LAC, and writes what is above it again."""
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            older = await begin(owner)
            await older.append(b"before", seq=0)
            for region in ("us-east", "eu-west"):
                await world.cluster.kill_region(region)
            older.send(b"one", seq=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(begin, owner, WriterFence(2, 78)))
                await trio.sleep(3)
                for region in ("us-east", "eu-west"):
                    await world.cluster.restart_region(region)
            await Session(owner, 2).append(b"two", seq=2)
        async with open_owner(world.log) as owner:
            standing = await owner.hello(TILL, None)
            assert (standing.epoch, standing.seq_highest) == (2, 2)
        assert await values_of(world.log) == [b"before", b"one", b"two"]


async def test_a_fence_is_remembered_across_rolls(autojump_clock: MockClock) -> None:
    async with open_world(segment_bytes=65536) as world:
        async with open_owner(world.log) as owner:
            session = await begin(owner)
            for seq in range(12):
                await session.append(random.Random(seq).randbytes(20_000), seq=seq)
                await trio.sleep(1)  # Let the next ledger get ready.
            assert owner.owner.segment_highest > 1
        async with open_owner(world.log) as owner:
            with pytest.raises(FenceRefusedError):
                await owner.hello(TILL, WriterFence(1, 78))
            await begin(owner)


async def test_batches_behind_a_refused_one_are_refused_until_it_comes_again(
    autojump_clock: MockClock,
) -> None:
    """A session sends on before it hears of a refusal."""
    async with open_world() as world, open_owner(world.log) as owner:
        session = await begin(owner)
        await session.append(b"0", seq=0)
        with pytest.raises(geolog.ConflictError, match="expects sequence 9"):
            session.send(b"1", seq=1, expect_sequence=9)
        for seq in (2, 3):
            with pytest.raises(geolog.ConflictError, match="append it again before") as behind:
                session.send(b"%d" % seq, seq=seq, seq_before=seq - 1)
            assert behind.value.outcome == "refused"
        for seq in (1, 2, 3):
            await session.append(b"%d" % seq, seq=seq)

        assert await values_of(world.log) == [b"0", b"1", b"2", b"3"]


async def test_the_records_of_a_repeated_batch_are_answered_one_by_one(
    autojump_clock: MockClock,
) -> None:
    """They were batched differently, and an owner that took over answers."""
    async with open_world() as world:
        async with open_owner(world.log) as owner:
            session = await begin(owner)
            first = [
                await session.append(b"0", b"1", seq=0),
                await session.append(b"2", b"3", seq=2),
            ]
        async with open_owner(world.log) as owner:
            session = await begin(owner, WriterFence(2, 78))
            again = session.send(b"1", b"2", b"other", b"4", seq=1)
            assert isinstance(again.answer, Repeated)
            records = again.answer.records
            places = [await records.answer(row) for row in (0, 1)]
            with pytest.raises(geolog.ConflictError, match="different bytes"):
                await records.answer(2)
            with pytest.raises(geolog.ConflictError, match="in flight"):
                await records.answer(3)

        assert [one.sequence for one in places] == [1, 2]
        assert [(one.dlsn.entry, one.dlsn.slot) for one in places] == [
            (first[0].entry, 1),
            (first[1].entry, 0),
        ]
        assert await values_of(world.log) == [b"0", b"1", b"2", b"3"]


async def test_no_fence_is_acknowledged_while_its_entry_is_not(
    autojump_clock: MockClock,
) -> None:
    """Also not a repeated one: an owner may have been deposed without noticing."""
    async with open_world() as world:
        with suppress(geolog.GeologError):
            async with open_owner(world.log) as owner:
                await begin(owner)
                for region in REGIONS:
                    await world.cluster.kill_region(region)
                with trio.move_on_after(5) as patience:
                    await owner.hello(TILL, FIRST)
                assert patience.cancelled_caught


async def test_a_session_owns_and_fences_partitions_added_while_it_fences(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a later session could go by more partitions while this one appends."""
    fences: list[int] = []
    async with open_world() as world:
        hello = PartitionWriter.hello

        async def grow_before_fence(
            owner: PartitionWriter, writer_id: bytes, fence: WriterFence | None
        ) -> WriterStanding:
            if fence is not None and not fences:
                await world.log.update_stream(STREAM, partitions=3)
            if fence is not None:
                fences.append(owner.name.number)
            return await hello(owner, writer_id, fence)

        monkeypatch.setattr(PartitionWriter, "hello", grow_before_fence)
        async with world.log.open_writer(STREAM, writer_id="till-7") as writer:
            assert len(writer.lanes) == 3
            for seq in range(12):
                await writer.append(b"%d" % seq, key=b"%d" % seq, seq=seq)

        assert fences[0] == 0
        assert sorted(fences[1:]) == [0, 1, 2], "each turn fences all partitions"
        assert len(await values_of(world.log)) == 12
