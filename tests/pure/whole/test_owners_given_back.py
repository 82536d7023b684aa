"""An abandoned or former owner keeps no reader waiting."""

from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_owners import PartitionOwners
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.protocol.owner_absence import OwnerSeen
from geolog.protocol.stream_state import StreamName
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.clusters import (
    STREAM,
    World,
    die_before_the_lac_is_told,
    ended_by,
    is_owned,
    numbered,
    open_world,
    values_of,
)
from tests.pure.whole.owner_sites import NAME, PATHS, Site, open_site

# Metadata only.


async def test_an_abandoned_take_in_doubt_is_released_once_metadata_answers(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await site.shown.be_present()
        site.late.breaks_count = 1
        with trio.move_on_after(1.0):
            await site.take()
        await trio.sleep(3.0)
        assert await seen_by_others(site) is OwnerSeen.ALIVE
        site.session.restore()
        await trio.sleep(2.0)

        assert await site.seen() is OwnerSeen.LEFT


async def seen_by_others(site: Site) -> OwnerSeen:
    """Look for the owner in another session."""
    async with site.store.open_session() as session:
        return (await PartitionOwners(session, PATHS).look_for_owner(NAME)).seen


async def test_an_abandoned_take_whose_session_was_lost_is_released(
    autojump_clock: MockClock,
) -> None:
    """The process shows itself in the next session, so its record must not name it."""
    async with open_site(partitions=2) as site:
        await site.take(1)
        site.late.breaks_count = 1
        with trio.move_on_after(1.0):
            await site.take()
        await trio.sleep(20.0)
        assert await seen_by_others(site) is OwnerSeen.MISSING
        site.session.restore()
        await trio.sleep(2.0)

        assert await site.seen(0) is OwnerSeen.LEFT
        assert await site.seen(1) is OwnerSeen.ALIVE


async def test_a_take_that_succeeds_after_one_in_doubt_leaves_one_owner(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await site.shown.be_present()
        site.session.lose_next_answer()
        owner = await site.take()
        await trio.sleep(5.0)

        assert owner.record.epoch == 2
        assert (await site.owners.read_latest(NAME)).record == owner.record
        assert await site.seen() is OwnerSeen.ALIVE


async def test_a_release_that_metadata_refuses_is_logged_and_retried(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_site() as site:
        owner = await site.take()
        site.late.refusals_count = 5
        with trio.move_on_after(1.0):
            await site.shown.release(owner)
        assert await site.seen() is OwnerSeen.ALIVE
        await trio.sleep(60.0)

        assert await site.seen() is OwnerSeen.LEFT
        assert [record.message.count("cannot release") for record in caplog.records] == [1]


async def test_an_owner_is_shown_soon_after_a_session_whose_first_requests_failed(
    autojump_clock: MockClock,
) -> None:
    """Each request fails with its connection; readers wait for half a session timeout."""
    async with open_site(session_timeout_s=2.0) as site:
        owner = await site.take()
        await trio.sleep(5.0)
        site.late.failures_count = 8
        site.session.expire()
        while site.late.failures_count:  # noqa: ASYNC110 - not told.
            await trio.sleep(0.01)
        connected_s = trio.current_time()
        while site.session_of(owner) != site.session.session_id:  # noqa: ASYNC110
            await trio.sleep(0.01)

        assert trio.current_time() - connected_s < 2.0 / 4


async def test_an_idle_owner_of_a_deleted_stream_learns_of_it_and_stops_asking(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        catalog = StreamCatalog(site.session, PATHS)
        kept = attrs.evolve(site.record, name=StreamName.parse("shop/kept"))
        await catalog.create(kept, namespace_version=None)
        owner, other = await site.take(), await site.shown.take(kept.partition(0), "process")
        told: list[geolog.GeologError] = []
        for one in (owner, other):
            site.shown.tell_deposed(one.record, told.append)
        await catalog.begin_delete(site.record.name)
        await site.owners.depose(NAME)
        site.session.expire()
        await trio.sleep(10.0)
        asked = site.counted.asked
        await trio.sleep(600.0)

        assert [type(error) for error in told] == [geolog.NoSuchStreamError]
        assert site.counted.asked == asked
        assert site.session_of(other) == site.session.session_id


async def test_an_idle_owner_of_a_sealed_stream_learns_of_it(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        owner = await site.take()
        told: list[geolog.GeologError] = []
        site.shown.tell_deposed(owner.record, told.append)
        await site.owners.seal(NAME)
        await StreamCatalog(site.session, PATHS).change(
            NAME.stream, partial(attrs.evolve, is_sealed=True)
        )
        site.late.reads_to_fail_count = 3
        site.session.expire()
        await trio.sleep(10.0)

        assert [type(error) for error in told] == [geolog.SealedError]


# Whole clusters.


async def test_an_abandoned_takeover_in_doubt_blocks_no_reader_while_its_process_lives(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            await die_before_the_lac_is_told(world)
        await trio.sleep(10)
        sessions: list[MemoryMetadata] = []
        async with (
            world.cluster.open_client(
                "us-east", host="opener", on_session=sessions.append
            ) as log,
            trio.open_nursery() as nursery,
        ):
            world.cluster.store.round_trip_s = lambda: 0.1
            nursery.start_soon(cut_off_when_taken, world, sessions[0])
            with trio.move_on_after(1.0):
                async with log.open_writer(STREAM):
                    raise AssertionError
            await trio.sleep(4.0)  # Longer than anybody waits for it, and no time-out.
            sessions[0].restore()
            await trio.sleep(2.0)

            assert not await is_owned(world.log)
            with trio.fail_after(10.0):
                assert await values_of(world.log) == numbered(3)


async def cut_off_when_taken(world: World, session: MemoryMetadata) -> None:
    """Carry out the take, and lose its answer."""
    name = (await StreamCatalog(world.session, PATHS).read(NAME.stream)).partition(0)
    taken = trio.Event()
    await world.log.access.partitions.owners.read(name, changed=taken)
    await taken.wait()
    session.cut_off()


async def test_an_idle_writer_learns_that_its_stream_was_deleted(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="owner", on_session=sessions.append) as log,
    ):
        with ended_by(geolog.NoSuchStreamError):
            async with log.open_writer(STREAM) as writer:
                await writer.append(b"first")
                await world.log.delete_stream(STREAM)
                sessions[0].expire()
                await trio.sleep(10)
                for node in world.cluster.nodes:  # No node can tell it.
                    world.cluster.network.cut("owner", node)
                sessions[0].cut_off()
                with trio.fail_after(0.1):
                    await writer.append(b"second")
