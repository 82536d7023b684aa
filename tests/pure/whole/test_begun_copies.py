"""A replay finishes its own copy, and never that of another job with the same name."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.staging.begun_copy import finish_begun_copy
from geolog.protocol.sink_copy import NO_QUERY
from tests.pure.whole.clusters import STREAM, World, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of

FILES = "file:/data/orders"


async def finish(world: World, *, source: str = FILES, stream: str = STREAM) -> bool:
    return await finish_begun_copy(world.log, SINK, source=source, stream=stream)


async def leave_copy(world: World, *values: str, query: str = NO_QUERY) -> Driver:
    """Record a batch, and die before it is copied."""
    driver = Driver(world.log, "killed")
    staged = await driver.stage(rows_of(*values))
    with trio.move_on_after(0.003):
        await driver.commit(0, staged, query=query, is_repeatable=query != NO_QUERY)
    record = (await sinks_of(world).ensure(SINK)).record
    assert (record.batch, record.is_copied) == (0, False)
    return driver


async def test_the_copy_of_the_same_files_is_finished_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        assert not await finish(world)
        driver = await leave_copy(world, "a", "b")
        assert await finish(world)
        with pytest.raises(
            geolog.ConflictError, match="is done: it has appended its 2 records"
        ):
            await finish(world)

        assert await driver.values() == [b"a", b"b"]
        assert await driver.listed_count() == 0


@pytest.mark.parametrize("query", [NO_QUERY, "a query"])
async def test_the_copy_of_another_job_is_left_to_that_job(
    autojump_clock: MockClock, query: str
) -> None:
    """A write of a program, or a query: its rows are not those of the files."""
    async with open_world() as world:
        driver = await leave_copy(world, "a", query=query)
        with pytest.raises(geolog.ConflictError, match="is the name of another write or query"):
            await finish(world)

        assert await driver.values() == []


async def test_the_copy_of_other_files_or_into_another_stream_is_left_too(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        assert not await finish(world, source="file:/data/of-yesterday")
        driver = await leave_copy(world, "a")
        with pytest.raises(geolog.ConflictError, match="the replay of file:/data/of-yesterday"):
            await finish(world)
        with pytest.raises(geolog.ConflictError, match=f"of-yesterday into {STREAM}"):
            await finish(world, source="file:/data/of-yesterday", stream="shop/more")

        assert await driver.values() == []
        assert await finish(world, source="file:/data/of-yesterday")


async def test_a_replay_that_never_staged_a_row_leaves_its_name_to_another(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        assert not await finish(world, source="file:/data/wrong")
        assert not await finish(world)
        await leave_copy(world, "a")
        assert await finish(world)
