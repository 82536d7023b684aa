"""Owners show in every session that they live; readers depose no living owner."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import LogConfig
from geolog.metadata.rules import parent_of
from geolog.metadata.seam import Create, Delete
from geolog.protocol.owner_absence import OwnerSeen
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
from tests.pure.whole.owner_sites import NAME, PATHS, open_site, process_of

FAR_S = 0.2


# Metadata only.


async def test_an_owner_is_shown_again_in_the_next_session(autojump_clock: MockClock) -> None:
    async with open_site() as site:
        owner = await site.take()
        await trio.sleep(5)
        site.session.expire()
        await trio.sleep(2)

        assert site.session_of(owner) == site.session.session_id


async def test_an_owner_whose_session_was_lost_at_once_is_shown_again(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        owner = await site.take()
        site.session.expire()  # No other task has run since.
        await trio.sleep(2)

        assert site.session_of(owner) == site.session.session_id


async def test_a_lost_answer_costs_one_more_look_and_then_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        owner = await site.take()
        await trio.sleep(5)
        site.session.lose_next_answer()
        site.session.expire()
        await trio.sleep(30)
        asked = site.counted.asked
        await trio.sleep(600)

        assert site.session_of(owner) == site.session.session_id
        assert site.counted.asked == asked


async def test_a_thousand_owners_are_shown_again_by_one_create(
    autojump_clock: MockClock,
) -> None:
    """Then one read confirms that their stream still exists."""
    count = 1000
    async with open_site(partitions=count) as site:
        owners = [await site.take(number) for number in range(count)]
        await trio.sleep(5)
        begun = site.counted.asked
        site.late.asked.clear()
        site.session.expire()
        await trio.sleep(30)

        assert {site.session_of(owner) for owner in owners} == {site.session.session_id}
        assert site.late.asked == [[Create(site.shown.presence, is_ephemeral=True)]]
        assert (site.counted.asked - begun).requests == 2


async def test_the_first_claim_of_a_process_waits_for_two_rounds_of_requests(
    autojump_clock: MockClock,
) -> None:
    """Making its node adds none, whether or not its folder exists."""
    async with open_site() as site:
        await site.session.ensure_path(PATHS.presences)
        site.store.round_trip_s = lambda: FAR_S
        folders: list[int] = []
        for shown in (site.shown, process_of(site.session, "process")) * 2:
            folders.append(len(site.store.tree.children(PATHS.presences)))
            begun_s = trio.current_time()
            await shown.take(NAME, "process")

            assert trio.current_time() - begun_s == pytest.approx(2 * FAR_S)
        assert folders == [0, 1, 2, 2]


async def test_a_process_whose_node_was_removed_makes_it_again_before_it_claims(
    autojump_clock: MockClock,
) -> None:
    """No owner record names a node that is not there."""
    async with open_site(partitions=2) as site:
        await site.take(0)
        await site.session.delete(site.shown.presence)
        owner = await site.take(1)

        assert site.session_of(owner) == site.session.session_id


async def test_a_node_left_by_an_older_session_is_replaced_without_ever_being_missing(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, site.store.open_session() as older:
        path = site.shown.presence
        await site.session.ensure_path(parent_of(path))
        await older.create(path, is_ephemeral=True)
        replaced = trio.Event()
        await site.session.get(path, changed=replaced)
        site.late.asked.clear()
        owner = await site.take()
        site.store.end_session(older.session_id)

        assert site.session_of(owner) == site.session.session_id
        assert replaced.is_set()
        assert [Delete(path), Create(path, is_ephemeral=True)] in site.late.asked


async def test_a_missing_owner_looks_the_same_whatever_processes_of_other_folders_do(
    autojump_clock: MockClock,
) -> None:
    """Processes come and go all the time; each gives readers of one folder another count."""
    async with open_site() as site:
        await site.take()
        async with site.store.open_session() as reading, site.store.open_session() as session:
            owners = PartitionOwners(reading, PATHS)
            site.session.cut_off()
            await trio.sleep(10)
            missing = await owners.look_for_owner(NAME)
            assert missing.seen is OwnerSeen.MISSING

            await process_of(session, "of another folder").be_present()
            assert await owners.look_for_owner(NAME) == missing
            await session.create(f"{site.shown.presence}-next-to-it", is_ephemeral=True)
            assert await owners.look_for_owner(NAME) != missing


async def test_an_owner_that_has_left_is_not_shown_in_the_next_session(
    autojump_clock: MockClock,
) -> None:
    async with open_site(partitions=2) as site:
        owner, other = await site.take(0), await site.take(1)
        await site.shown.release(owner)
        assert await site.seen(0) is OwnerSeen.LEFT
        site.session.expire()
        await trio.sleep(10)

        assert await site.seen(0) is OwnerSeen.LEFT
        assert await site.seen(1) is OwnerSeen.ALIVE
        assert site.session_of(other) == site.session.session_id


async def test_an_owner_that_leaves_while_metadata_is_away_is_released_later(
    autojump_clock: MockClock,
) -> None:
    """Its session lives on, so nothing else would ever tell readers."""
    async with open_site() as site:
        owner = await site.take()
        site.session.cut_off(noticed_after_s=0.5)
        with trio.move_on_after(2.0):
            await site.shown.release(owner)
        site.session.restore()
        assert await site.seen() is OwnerSeen.ALIVE
        await trio.sleep(15)

        assert await site.seen() is OwnerSeen.LEFT


@pytest.mark.parametrize("is_answer_lost", [False, True])
async def test_a_release_leaves_what_the_next_owner_has(
    is_answer_lost: bool,  # noqa: FBT001 - the case.
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site, site.store.open_session() as session:
        owner = await site.take()
        theirs = await process_of(session, "another").take(NAME, "another")
        if is_answer_lost:
            site.session.lose_next_answer()
        await site.shown.release(owner)

        assert site.session_of(theirs) == session.session_id
        assert (await site.owners.read_latest(NAME)).record == theirs.record


async def test_an_abandoned_take_leaves_another_owner_of_the_same_process_alone(
    autojump_clock: MockClock,
) -> None:
    """The two claims differ only by their ids."""
    async with open_site() as site:
        taken: list[VersionedOwner] = []

        async def take_first() -> None:
            taken.append(await site.take())

        await site.shown.be_present()
        site.late.comes_first.append(take_first)
        with trio.move_on_after(5):
            await site.take()
        await trio.sleep(30)

        [owner] = taken
        assert owner.record.epoch == 1
        assert (await site.owners.read_latest(NAME)).record == owner.record
        assert await site.seen() is OwnerSeen.ALIVE


# Whole clusters.


async def test_a_reader_does_not_depose_an_owner_whose_session_was_lost_as_it_took_over(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_far_writer(world, lost_early=True) as (writer, _):
        await writer.append(b"first")
        await trio.sleep(30)
        assert await is_owned(world.log)

        await read_while_written(world, writer)
        await writer.append(b"last")


async def test_a_reader_gives_an_owner_time_to_come_back(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_far_writer(world) as (writer, session):
        await writer.append(b"first")
        session.cut_off()
        world.cluster.store.end_session(session.session_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_while_written, world, writer)
            await trio.sleep(1.5)  # Less than the grace.
            session.restore()
        await writer.append(b"last")


async def test_an_owner_gets_time_to_come_back_each_time_that_its_session_is_lost(
    autojump_clock: MockClock,
) -> None:
    """The reader does not look in between, so it has not seen the owner return."""
    async with (
        open_world() as world,
        open_far_writer(world) as (writer, session),
        world.cluster.open_client("eu-west", host="reads") as log,
    ):
        await writer.append(b"first")
        for _ in range(2):
            session.cut_off()
            world.cluster.store.end_session(session.session_id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_on, writer)
                with trio.move_on_after(1.0):  # Less than the grace.
                    while True:
                        await values_of(log)
                nursery.cancel_scope.cancel()
            session.restore()
            await trio.sleep(40)
        await writer.append(b"last")


async def write_on(writer: geolog.Writer) -> None:
    while True:
        await writer.append(b"more")


async def test_a_reader_does_not_depose_an_owner_unknown_to_a_deposed_metadata_leader(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_far_writer(world) as (writer, session):
        await writer.append(b"first")
        session.expire()
        await read_while_written(world, writer, on_session=MemoryMetadata.lag_deposed)
        await writer.append(b"last")


@asynccontextmanager
async def open_far_writer(
    world: World, *, lost_early: bool = False
) -> AsyncIterator[tuple[geolog.Writer, MemoryMetadata]]:
    """Open a writer whose reader is far away, and always finds more entries in flight.

    lost_early: the process's session ends before its takeover is answered.
    """
    world.cluster.network.latency_s = lambda one, other: (
        0.06 if "reads" in (one, other) else 0.01
    )
    sessions: list[MemoryMetadata] = []
    async with (
        world.cluster.open_client("us-east", host="owner", on_session=sessions.append) as log,
        trio.open_nursery() as nursery,
    ):
        [session] = sessions
        if lost_early:
            nursery.start_soon(expire_when_open, world, session)
        async with log.open_writer(STREAM) as writer:
            yield writer, session


async def expire_when_open(world: World, session: MemoryMetadata) -> None:
    """End the session when the first segment is listed, before the writer learns of it."""
    name = (await StreamCatalog(world.session, PATHS).read(NAME.stream)).partition(0)
    while True:
        made = trio.Event()
        if await world.session.children(PATHS.segments(name), changed=made):
            session.expire()
            return
        await made.wait()


async def read_while_written(
    world: World,
    writer: geolog.Writer,
    on_session: Callable[[MemoryMetadata], None] | None = None,
) -> None:
    """Read to the end again and again, for longer than a grace, while the writer appends."""

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_on, writer)
        async with world.cluster.open_client(
            "eu-west", host="reads", on_session=on_session
        ) as log:
            ends_s = trio.current_time() + 5.0
            while trio.current_time() < ends_s:
                with trio.fail_after(30):
                    assert await values_of(log)
                await trio.sleep(0.5)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("patience_s", [0.5, 30.0])
async def test_readers_wait_for_a_dead_owner_at_most_one_session_timeout(
    patience_s: float, autojump_clock: MockClock
) -> None:
    """Counted from when its node went, however patient each read is."""
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            await die_before_the_lac_is_told(world)
        gone_s = await when_owner_is_gone(world)
        async with world.cluster.open_client("eu-west", host="reads") as log:
            read: list[bytes] = []
            while not read:
                with trio.move_on_after(patience_s):
                    read = await values_of(log)

        assert read[:3] == numbered(3)
        assert trio.current_time() - gone_s < world.session.session_timeout_s


async def when_owner_is_gone(world: World) -> float:
    name = (await StreamCatalog(world.session, PATHS).read(NAME.stream)).partition(0)
    owner = (await world.log.access.partitions.owners.read_latest(name)).record
    while True:
        changed = trio.Event()
        if await world.session.find(owner.presence, changed=changed) is None:
            return trio.current_time()
        await changed.wait()


async def test_a_failed_owner_keeps_no_reader_waiting_while_its_block_is_open(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(partition=PartitionConfig(append_timeout_s=5.0))
    async with open_world() as world:
        with ended_by(geolog.UnavailableError):
            async with (
                world.cluster.open_client("us-east", host="owner", config=config) as log,
                log.open_writer(STREAM) as writer,
            ):
                for value in numbered(3):
                    await writer.append(value)
                for node in world.cluster.nodes:
                    world.cluster.network.cut_one_way(node, "owner")
                with pytest.raises(geolog.OutcomeUnknownError):
                    await writer.append(b"in doubt")
                for node in world.cluster.nodes:
                    world.cluster.network.mend(node, "owner")

                async with world.cluster.open_client("eu-west", host="reads") as readers:
                    with trio.fail_after(2.0):
                        found = await values_of(readers)
                assert found[:3] == numbered(3)
                await writer.append(b"refused")


async def test_an_owner_whose_block_ends_while_metadata_is_away_is_released_later(
    autojump_clock: MockClock,
) -> None:
    """The session lives on, and so does the program."""
    config = LogConfig(partition=PartitionConfig(close_timeout_s=2.0))
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client(
            "us-east", host="owner", config=config, on_session=sessions.append
        ) as log,
    ):
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"first")
            sessions[0].cut_off()
        assert await is_owned(world.log)
        sessions[0].restore()
        await trio.sleep(10)

        assert not await is_owned(world.log)


async def test_an_owner_is_shown_while_it_still_recovers_ledgers(
    autojump_clock: MockClock,
) -> None:
    """A takeover may last longer than a session."""
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await writer.append(b"first")
        for node in world.cluster.nodes:
            world.cluster.network.cut("owner", node)
        sessions: list[MemoryMetadata] = []
        async with (
            world.cluster.open_client(
                "us-east", host="owner", on_session=sessions.append
            ) as log,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(open_and_wait, log)
            await trio.sleep(5)
            sessions[0].expire()
            await trio.sleep(5)

            assert await is_owned(world.log)
            nursery.cancel_scope.cancel()


async def open_and_wait(log: geolog.Log) -> None:
    async with log.open_writer(STREAM):
        await trio.sleep_forever()
