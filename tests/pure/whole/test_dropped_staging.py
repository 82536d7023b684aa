"""Staging of many tasks is dropped with few requests, whatever is gone already."""

import pytest
from trio.testing import MockClock

from geolog.catalog.sinks import sink_id_of
from geolog.metadata.seam import Operation
from geolog.protocol.sink_copy import NO_QUERY, StagedPart
from sim.fakes.memory_metadata import MemoryMetadata
from sim.fakes.metadata_tree import WriteAnswer
from tests.pure.whole.clusters import World, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of

LEDGERS_COUNT = 130


async def stage_many(driver: Driver) -> list[StagedPart]:
    return [await driver.stage(rows_of(f"{number:03d}")) for number in range(LEDGERS_COUNT)]


def count_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of operations in each request to metadata from here on."""
    sizes: list[int] = []
    multi = MemoryMetadata.multi

    async def counted(self: MemoryMetadata, operations: list[Operation]) -> list[WriteAnswer]:
        sizes.append(len(operations))
        return await multi(self, operations)

    monkeypatch.setattr(MemoryMetadata, "multi", counted)
    return sizes


async def ledgers_left(driver: Driver, parts: list[StagedPart]) -> int:
    return sum([await driver.is_there(part) for part in parts])


async def test_an_abort_drops_many_ledgers_with_few_requests(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        parts = await stage_many(driver)
        sizes = count_requests(world, monkeypatch)
        await driver.abort()

        assert len([size for size in sizes if size > 1]) == 2
        assert (await driver.listed_count(), await ledgers_left(driver, parts)) == (0, 0)


@pytest.mark.parametrize("gone", ["the ledger", "its line"])
async def test_staging_that_is_gone_already_does_not_keep_the_rest(
    autojump_clock: MockClock, gone: str
) -> None:
    """Nodes drop ledgers that expired; another driver takes one off the list first."""
    async with open_world() as world:
        driver = Driver(world.log)
        parts = await stage_many(driver)
        listed = await sinks_of(world).listed(SINK)
        access, sink_id = world.log.access, sink_id_of(SINK)
        if gone == "the ledger":
            await access.metadata.delete(access.paths.ledger(parts[50].ledger))
        else:
            names = await access.metadata.children(access.paths.sink_ledgers(sink_id))
            [name] = [one for one in names if int(one.split("-")[0]) == parts[50].ledger]
            await access.metadata.delete(access.paths.sink_line(sink_id, name))
        await sinks_of(world).drop(SINK, listed)

        assert (await driver.listed_count(), await ledgers_left(driver, parts)) == (0, 0)


async def test_a_commit_of_many_ledgers_leaves_none(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        parts = await stage_many(driver)
        lost = await driver.stage(rows_of("of a speculative task"))
        await driver.commit(0, *parts, query=NO_QUERY, is_repeatable=False)

        assert len(await driver.values()) == LEDGERS_COUNT
        assert (await driver.listed_count(), await ledgers_left(driver, [*parts, lost])) == (
            0,
            0,
        )
