"""Sinks of batch writes that ended long ago are forgotten; all others stay."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.sinks import FORGOTTEN_AFTER_S, sink_id_of
from geolog.protocol.sink_copy import NO_QUERY
from tests.pure.whole.clusters import World, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of


def pass_time(world: World, time_s: float) -> None:
    world.cluster.store.clock_offset_us += round(time_s * 1e6)


async def is_known(world: World, sink: str = SINK) -> bool:
    path = world.log.access.paths.sink(sink_id_of(sink))
    return await world.session.find(path) is not None


async def write_batch(driver: Driver, *values: str) -> None:
    await driver.commit(
        0, await driver.stage(rows_of(*values)), query=NO_QUERY, is_repeatable=False
    )


async def test_the_name_of_a_batch_write_is_free_again_after_a_long_time(
    autojump_clock: MockClock,
) -> None:
    """The stream remembers the first write's numbers for less; here it still does."""
    async with open_world() as world:
        await write_batch(Driver(world.log, "first"), "a", "b")
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        await sinks_of(world).ensure("another")
        assert not await is_known(world)

        again = Driver(world.log, "again")
        await write_batch(again, "c", "d")
        assert await again.values() == [b"a", b"b", b"c", b"d"]


async def test_until_then_it_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await write_batch(Driver(world.log, "first"), "a")
        pass_time(world, FORGOTTEN_AFTER_S - 60)
        await sinks_of(world).ensure("another")

        with pytest.raises(geolog.ConflictError, match="is done once"):
            await write_batch(Driver(world.log, "again"), "b")


async def test_a_query_is_remembered_for_good(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(0, await driver.stage(rows_of("a")), query="one")
        pass_time(world, 10 * FORGOTTEN_AFTER_S)
        await sinks_of(world).ensure("another")
        await driver.commit(0, await driver.stage(rows_of("a")), query="one")

        assert await driver.values() == [b"a"]


async def test_a_sink_with_staging_is_not_forgotten(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.abort()  # It looks, so the sink is there, and has no batch.
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        staged = await driver.stage(rows_of("a"))
        await sinks_of(world).ensure("another")
        await driver.commit(0, staged, query=NO_QUERY, is_repeatable=False)

        assert await driver.values() == [b"a"]


async def test_an_unfinished_copy_is_forgotten_once_its_staging_has_expired(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        staged = await driver.stage(rows_of("a"))
        with trio.move_on_after(0.003):
            await driver.commit(0, staged, query=NO_QUERY, is_repeatable=False)
        assert not (await sinks_of(world).ensure(SINK)).record.is_copied
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        await sinks_of(world).ensure("another")
        assert await is_known(world)

        access = world.log.access
        await access.metadata.delete(access.paths.ledger(staged.ledger))  # As nodes do.
        await sinks_of(world).ensure("yet another")
        assert not await is_known(world)


async def test_two_that_forget_the_same_sink_at_once_disturb_nobody(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await write_batch(Driver(world.log, "first"), "a")
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(sinks_of(world).ensure, f"another {number}")
        assert not await is_known(world)


async def test_a_sink_that_cannot_be_read_is_left_alone(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        access = world.log.access
        await sinks_of(world).ensure(SINK)
        path = access.paths.sink(sink_id_of(SINK))
        await access.metadata.put(path, b"damaged", 0)
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        await sinks_of(world).ensure("another")
        assert await is_known(world)


async def test_old_sinks_do_not_become_many(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        sinks = sinks_of(world)
        for number in range(300):
            await sinks.ensure(f"job of hour {number}")
            pass_time(world, FORGOTTEN_AFTER_S / 50)
        left = await world.session.children(world.log.access.paths.sinks)

    assert len(left) < 100
