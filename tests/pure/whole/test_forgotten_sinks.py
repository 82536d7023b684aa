"""Sinks of batch writes that ended long ago are forgotten; all others stay."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.sinks import FORGOTTEN_AFTER_S, SinkCatalog, sink_id_of
from geolog.ledger.ledger_metadata import VersionedLedger
from geolog.metadata.seam import Freshness, Stored
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.sink_copy import NO_QUERY
from sim.fakes.memory_metadata import MemoryMetadata
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


async def test_a_sink_that_cannot_be_read_does_not_keep_its_neighbours(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        access, sinks = world.log.access, sinks_of(world)
        names = ["a", "b", "c", "d"]
        for name in names:
            await sinks.ensure(name)
        await access.metadata.put(access.paths.sink(sink_id_of("b")), b"damaged", 0)
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        await sinks.ensure("another")

        assert [name for name in names if await is_known(world, name)] == ["b"]


async def test_the_sinks_that_a_new_one_looks_at_are_asked_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, a new sink far from metadata would wait for a round trip each."""
    async with open_world() as world:
        sinks = sinks_of(world)
        for number in range(8):
            await sinks.ensure(f"sink {number}")
        pass_time(world, FORGOTTEN_AFTER_S + 1)
        find = MemoryMetadata.find

        async def slow(
            self: MemoryMetadata, path: str, *, freshness: Freshness = Freshness.NEARBY
        ) -> Stored | None:
            await trio.sleep(1)
            return await find(self, path, freshness=freshness)

        monkeypatch.setattr(MemoryMetadata, "find", slow)
        began_s = trio.current_time()
        await sinks.ensure("another")
        waited_s = trio.current_time() - began_s
        monkeypatch.undo()
        left = await world.session.children(world.log.access.paths.sinks)

    assert left == [sink_id_of("another")]
    assert waited_s < 5


async def test_a_task_that_lists_its_ledger_in_a_sink_just_forgotten_goes_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found the old record, which is gone before its ledger is listed there."""
    async with open_world() as world:
        driver = Driver(world.log)
        await sinks_of(world).ensure(SINK)
        open_listed = SinkCatalog.open_listed
        lives: list[str] = []

        async def late(
            self: SinkCatalog,
            sink: str,
            allocated: VersionedLedger,
            opened: LedgerRecord,
            *,
            batch: int,
            run: str,
        ) -> VersionedLedger:
            if not lives:
                lives.append((await self.ensure(sink)).record.life)
                pass_time(world, FORGOTTEN_AFTER_S + 1)
                await self.ensure("another")
                assert not await is_known(world)
            return await open_listed(self, sink, allocated, opened, batch=batch, run=run)

        monkeypatch.setattr(SinkCatalog, "open_listed", late)
        await write_batch(driver, "a")
        lives.append((await sinks_of(world).ensure(SINK)).record.life)

        assert await driver.values() == [b"a"]
    assert lives[0] != lives[1]


async def test_old_sinks_do_not_become_many(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        sinks = sinks_of(world)
        for number in range(300):
            await sinks.ensure(f"job of hour {number}")
            pass_time(world, FORGOTTEN_AFTER_S / 50)
        left = await world.session.children(world.log.access.paths.sinks)

    assert len(left) < 100
