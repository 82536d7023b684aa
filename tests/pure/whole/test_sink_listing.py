"""Operators see which names Spark has written under, and delete those that have ended."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.staging.sink_listing import delete_sink, list_sinks
from geolog.protocol.sink_copy import NO_QUERY
from tests.pure.whole.clusters import STREAM, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of


async def test_each_sink_is_listed_with_its_latest_batch(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        assert await list_sinks(world.log) == []
        driver = Driver(world.log)
        await sinks_of(world).ensure("a new one")
        await driver.commit(0, await driver.stage(rows_of("a")), query="q", checkpoint="/c")
        await driver.commit(1, await driver.stage(rows_of("b", "c"), batch=1), query="q")
        new, query = await list_sinks(world.log)

    assert (new.sink, new.kind, new.batch) == ("a new one", "new", None)
    assert (query.sink, query.kind, query.batch, query.records) == (SINK, "query", 1, 2)
    assert (query.streams, query.is_copied, query.checkpoint) == ([STREAM], True, "/c")
    assert query.changed_us > new.changed_us


async def test_a_sink_that_is_deleted_goes_with_its_staging_and_its_name_is_free(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(
            0, await driver.stage(rows_of("a")), query=NO_QUERY, is_repeatable=False
        )
        lost = await driver.stage(rows_of("of a task that was killed"), batch=1)
        await delete_sink(world.log, SINK)
        assert await list_sinks(world.log) == []
        assert not await driver.is_there(lost)
        with pytest.raises(geolog.NotFoundError, match="there is no sink 'orders-of-today'"):
            await delete_sink(world.log, SINK)
        await driver.commit(
            0, await driver.stage(rows_of("b")), query=NO_QUERY, is_repeatable=False
        )

        assert await driver.values() == [b"a", b"b"]


async def test_an_unfinished_copy_is_given_up_by_force_only(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver, again = Driver(world.log), Driver(world.log, "again")
        staged = await driver.stage(rows_of("a", "b"))
        with trio.move_on_after(0.003):
            await driver.commit(0, staged)
        with pytest.raises(geolog.ConflictError, match="is not copied to its end"):
            await delete_sink(world.log, SINK)
        await delete_sink(world.log, SINK, force=True)

        assert await list_sinks(world.log) == []
        assert not await driver.is_there(staged)
        await again.commit(0, await again.stage(rows_of("c")))
        assert await again.values() == [b"c"]


async def test_a_sink_that_changes_meanwhile_stays(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(0, await driver.stage(rows_of("a")))
        sinks = sinks_of(world)
        found = await sinks.find(SINK)
        assert found is not None
        staged = await driver.stage(rows_of("b"), batch=1)
        await driver.commit(1, staged)
        for_next = await driver.stage(rows_of("c"), batch=2)
        with pytest.raises(geolog.GeologError):
            await sinks.delete(found)
        await driver.commit(2, for_next)

        assert await driver.values() == [b"a", b"b", b"c"]
