"""A process that drains gives its partitions to another, which owns them at once."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.offers import Offer
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.partition.batch_sink import SentBatch
from geolog.partition.hand_over import HandedOver
from geolog.partition.owner import OwnedPartitions
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerAnswer,
    OwnerEnded,
    Placed,
    Repeated,
    Unknown,
)
from geolog.protocol.stream_state import OwnerRecord, StreamName, StreamRecord
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import REGIONS, STREAM, values_of
from topology.errors import HandedOverError

TILL = b"till-7"


@attrs.frozen
class Owners:
    """Two processes: `old` has opened partitions, `new` may take them over."""

    cluster: InProcessCluster
    stream: StreamRecord
    old: geolog.Log
    new: geolog.Log
    owned: OwnedPartitions
    sessions: Sequence[MemoryMetadata]
    """Metadata sessions of the two."""

    async def hand_over(self, *offers: Offer) -> HandedOver:
        """Hand all partitions over, to the first of these that is there."""
        with trio.fail_after(20.0):
            return await self.old.partition_opener.hand_over(
                dict.fromkeys(self.owned.in_order, offers)
            )

    async def owner(self, number: int = 0) -> OwnerRecord:
        """The owner record of a partition."""
        owners = self.new.access.partitions.owners
        return (await owners.read_latest(self.stream.partition(number))).record


@asynccontextmanager
async def open_owners(partitions: int = 1) -> AsyncIterator[Owners]:
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(REGIONS, seed=0) as cluster,
        cluster.open_client("us-east", host="old", on_session=sessions.append) as old,
        cluster.open_client("us-east", host="new", on_session=sessions.append) as new,
    ):
        await old.create_stream(STREAM, survive="1 region", partitions=partitions)
        catalog = StreamCatalog(old.access.metadata, old.access.paths)
        stream = await catalog.read_latest(StreamName.parse(STREAM))
        async with old.partition_opener.open(stream, None, wants_received=False) as owned:
            yield Owners(cluster, stream, old, new, owned, sessions)


async def append(writer: PartitionWriter, value: bytes, *, seq: int | None = None) -> None:
    """Append a record, numbered if a seq is given, and wait for the answer."""
    stamp = None if seq is None else WriterStamp(TILL, 1, BatchSeqs(seq, 1), 1)
    sent = writer.append(seal_batch([value], created_us=1), BatchTerms(writer=stamp))
    await sent.done.wait()
    if isinstance(sent.answer, AppendRefused | Unknown | OwnerEnded):
        raise sent.answer.error


def outcome_of(answer: OwnerAnswer | None) -> str:
    """How an append ended."""
    if isinstance(answer, AppendRefused | Unknown | OwnerEnded):
        return answer.error.outcome
    return "appended" if isinstance(answer, Placed) else "open"


async def test_the_successor_owns_at_once_without_a_claim_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_owners(partitions=3) as site,
        site.new.partition_opener.open_offer() as offer,
    ):
        for writer in site.owned.in_order:
            await append(writer, b"old")
        handed = await site.hand_over(offer)
        given = [await site.owner(number) for number in range(3)]
        began_s = trio.current_time()
        async with site.new.partition_opener.open(
            site.stream, None, wants_received=False
        ) as opened:
            for writer in opened.in_order:
                await append(writer, b"new")

        assert set(handed.given.values()) == {offer}
        assert [record.epoch for record in given] == [2, 2, 2]
        assert [writer.epoch for writer in opened.in_order] == [2, 2, 2]
        assert trio.current_time() - began_s < 1.0
        assert sorted(await values_of(site.new)) == [b"new"] * 3 + [b"old"] * 3


async def test_appends_on_the_way_are_answered_and_later_ones_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        (writer,) = site.owned.in_order
        await writer.hello(TILL, WriterFence(1, 77))
        sent = [writer.append(seal_batch([b"on the way"], created_us=1)) for _ in range(20)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.hand_over, offer)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(HandedOverError) as refused:
                await append(writer, b"late", seq=1)

        assert refused.value.outcome == "refused"
        assert all(isinstance(one.answer, Placed) for one in sent)
        assert await values_of(site.new) == [b"on the way"] * 20


async def test_the_session_of_a_named_writer_goes_on_at_the_successor(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        (writer,) = site.owned.in_order
        await writer.hello(TILL, WriterFence(1, 77))
        await append(writer, b"first", seq=1)
        await site.hand_over(offer)
        async with site.new.partition_opener.open(
            site.stream, 0, wants_received=False
        ) as opened:
            await append(opened.in_order[0], b"first", seq=1)
            await append(opened.in_order[0], b"second", seq=2)

        assert await values_of(site.new) == [b"first", b"second"]


async def test_a_wave_takes_two_rounds_of_metadata(autojump_clock: MockClock) -> None:
    async with (
        open_owners(partitions=3) as site,
        site.new.partition_opener.open_offer() as offer,
    ):
        site.cluster.store.round_trip_s = lambda: 0.1
        began_s = trio.current_time()
        await site.hand_over(offer)

        assert trio.current_time() - began_s == pytest.approx(0.2)


async def test_blocks_that_end_with_their_writers_leave_nothing_of_the_hand_over_out(
    autojump_clock: MockClock,
) -> None:
    """A proxy ends each block as soon as its writer has failed, while others still end."""
    async with (
        open_owners(partitions=3) as site,
        site.new.partition_opener.open_offer() as offer,
        trio.open_nursery() as nursery,
    ):
        writers: list[PartitionWriter] = []

        async def own_until_it_fails(number: int) -> None:
            async with site.old.partition_opener.open(
                site.stream, number, wants_received=False
            ) as opened:
                writers.extend(opened.in_order)
                await opened.in_order[0].wait_ended()

        for number in range(3):
            nursery.start_soon(own_until_it_fails, number)
        await trio.sleep(5.0)
        await append(writers[0], b"one ledger takes longer to close")
        site.cluster.store.round_trip_s = lambda: 0.1
        handed = await site.old.partition_opener.hand_over(dict.fromkeys(writers, (offer,)))

        assert len(handed.given) == 3
        assert {(await site.owner(number)).presence for number in range(3)} == {offer.presence}


async def test_a_lost_answer_leaves_one_owner(autojump_clock: MockClock) -> None:
    async with (
        open_owners(partitions=2) as site,
        site.new.partition_opener.open_offer() as offer,
    ):
        for writer in site.owned.in_order:
            await writer.end()
        site.sessions[0].lose_next_answer()
        handed = await site.hand_over(offer)

        assert len(handed.given) == 2
        async with site.new.partition_opener.open(
            site.stream, None, wants_received=False
        ) as opened:
            assert [writer.epoch for writer in opened.in_order] == [2, 2]


async def test_a_withdrawn_offer_leads_to_the_next_successor(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site:
        async with site.new.partition_opener.open_offer() as gone:
            pass
        async with site.new.partition_opener.open_offer() as offer:
            handed = await site.hand_over(gone, offer)

        assert list(handed.given.values()) == [offer]


async def test_without_successors_the_partition_is_left(autojump_clock: MockClock) -> None:
    async with open_owners() as site:
        async with site.new.partition_opener.open_offer() as gone:
            pass
        handed = await site.hand_over(gone)

        assert len(handed.left) == 1
        assert not (await site.owner()).presence


async def test_a_dead_successor_gets_nothing(autojump_clock: MockClock) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        site.sessions[1].cut_off()
        await trio.sleep(20.0)
        handed = await site.hand_over(offer)

        assert len(handed.left) == 1
        site.sessions[1].restore()


async def test_a_partition_taken_by_a_third_process_is_lost_and_the_others_are_given(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_owners(partitions=3) as site,
        site.new.partition_opener.open_offer() as offer,
        site.cluster.open_client("eu-west", host="third") as third,
    ):
        for writer in site.owned.in_order:
            await writer.end()
        async with third.partition_opener.open(site.stream, 1, wants_received=False) as opened:
            handed = await site.hand_over(offer)
            await append(opened.in_order[0], b"third")

        assert [name.number for name in handed.lost] == [1]
        assert sorted(name.number for name in handed.given) == [0, 2]


async def test_a_given_partition_that_nobody_opened_can_be_taken_by_epoch(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_owners() as site,
        site.new.partition_opener.open_offer() as offer,
        site.cluster.open_client("eu-west", host="third") as third,
    ):
        await append(site.owned.in_order[0], b"old")
        await site.hand_over(offer)
        with trio.fail_after(1.0):
            assert await values_of(third) == [b"old"]
        async with third.partition_opener.open(site.stream, 0, wants_received=False) as opened:
            await append(opened.in_order[0], b"third")
            assert opened.in_order[0].epoch == 3
        async with site.new.partition_opener.open(
            site.stream, 0, wants_received=False
        ) as opened:
            assert opened.in_order[0].epoch == 4


async def test_a_given_partition_is_taken_up_once(autojump_clock: MockClock) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        await site.hand_over(offer)
        epochs = []
        for _ in range(2):
            async with site.new.partition_opener.open(
                site.stream, 0, wants_received=False
            ) as opened:
                epochs.append(opened.in_order[0].epoch)

        assert epochs == [2, 3]


async def test_an_offer_is_made_again_in_the_next_session(autojump_clock: MockClock) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        site.sessions[1].expire()
        await trio.sleep(5.0)

        assert await site.new.access.partitions.offers.list_live() == [offer]
        assert len((await site.hand_over(offer)).given) == 1


@pytest.mark.parametrize("interrupted_s", [0.1, 0.4, 0.7])
async def test_an_interrupted_hand_over_leaves_no_owner_behind(
    autojump_clock: MockClock, interrupted_s: float
) -> None:
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        site.cluster.store.round_trip_s = lambda: 0.3
        with trio.move_on_after(interrupted_s):
            await site.hand_over(offer)
        site.cluster.store.round_trip_s = lambda: 0.0
        await site.owned.leave()
        record = await site.owner()

        assert record.presence in ("", offer.presence)


async def test_a_writer_goes_on_if_its_hand_over_is_given_up_at_any_moment(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site:
        (writer,) = site.owned.in_order
        for number in range(30):
            sent = [writer.append(seal_batch([bytes(70_000)], created_us=1)) for _ in range(3)]
            with trio.move_on_after(0.001 * number):
                await writer.end()
            writer.on_handed_over()
            if writer.failure is not None:
                break
            await sent[-1].done.wait()
            await append(writer, b"goes on")
        else:
            pytest.fail("the hand-over never came to an end")

        assert isinstance(writer.failure, HandedOverError)


async def test_a_batch_sent_again_on_its_way_is_answered_like_the_first_try(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site:
        (writer,) = site.owned.in_order
        await writer.hello(TILL, WriterFence(1, 77))
        first, second = (
            writer.append(
                seal_batch([b"%d" % seq], created_us=1),
                BatchTerms(writer=WriterStamp(TILL, 1, BatchSeqs(seq, 1), 1)),
            )
            for seq in (1, 2)
        )
        again = writer.append(
            seal_batch([b"2"], created_us=1),
            BatchTerms(writer=WriterStamp(TILL, 1, BatchSeqs(2, 1), 1)),
        )
        is_answered_early = again.done.is_set()
        await again.done.wait()

        assert not is_answered_early
        assert isinstance(first.answer, Placed)
        assert isinstance(second.answer, Placed)
        assert isinstance(again.answer, Repeated)
        place = await again.answer.records.answer(0)
        assert (place.dlsn.entry, place.sequence) == (second.answer.entry, 1)


async def test_a_batch_sent_again_is_unknown_if_the_owner_ends_before_its_first_try(
    autojump_clock: MockClock,
) -> None:
    async with open_owners() as site:
        (writer,) = site.owned.in_order
        await writer.hello(TILL, WriterFence(1, 77))
        terms = BatchTerms(writer=WriterStamp(TILL, 1, BatchSeqs(1, 1), 1))
        batch = seal_batch([b"1"], created_us=1)
        writer.append(batch, terms)
        again = writer.append(batch, terms)
        await writer.leave()

        assert isinstance(again.answer, OwnerEnded)
        assert again.answer.error.outcome == "unknown"


async def test_a_writer_that_leaves_refuses_what_comes_during_its_last_snapshot(
    autojump_clock: MockClock,
) -> None:
    """Such an append would end unknown, and the next owner would have to recover the ledger."""
    sent: list[SentBatch] = []

    async def append_on(writer: PartitionWriter) -> None:
        while writer.failure is None:
            sent.append(writer.append(seal_batch([b"%d" % len(sent)], created_us=1)))
            await trio.sleep(0.0001)

    async with open_owners() as site, trio.open_nursery() as nursery:
        async with site.new.partition_opener.open(
            site.stream, None, wants_received=False
        ) as opened:
            (writer,) = opened.in_order
            await append(writer, bytes(300 << 10))  # Enough to be worth a snapshot.
            nursery.start_soon(append_on, writer)
            await trio.sleep(0.01)
        read = await values_of(site.old)

    outcomes = [outcome_of(one.answer) for one in sent]
    assert set(outcomes) == {"appended", "refused"}
    assert read[1:] == [b"%d" % at for at, one in enumerate(outcomes) if one == "appended"]


async def test_a_partition_that_stops_but_does_not_close_in_time_is_not_kept(
    autojump_clock: MockClock,
) -> None:
    """Only metadata is slow: the writer takes nothing more, so its owner does not have it."""
    async with open_owners() as site, site.new.partition_opener.open_offer() as offer:
        (writer,) = site.owned.in_order
        await append(writer, b"old")
        site.sessions[0].cut_off()
        handed = await site.hand_over(offer)
        site.sessions[0].restore()

        assert isinstance(writer.failure, HandedOverError)
        assert (handed.kept, handed.left) == ([], [writer.name])
