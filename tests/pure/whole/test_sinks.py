"""A sink's batches reach their streams once, whatever its tasks and drivers went through."""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.sinks import SinkCatalog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.staging.sink_commit import CommitReport, SinkCommit
from geolog.client.staging.staging_writer import open_staging_writer
from geolog.client.writing.partitioner import partition_of_key
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.protocol.sink_copy import StagedBatch, StagedPart
from geolog.protocol.stream_state import StreamName
from sim.fakes.memory_disk import DISK_BYTES
from sim.in_process import FREE_CHECK_S
from tests.pure.whole.clusters import STREAM, World, open_world

SINK = "orders-of-today"
Rows = Sequence[tuple[bytes | None, bytes]]


@attrs.frozen
class Driver:
    """One driver of the query, or one start of it."""

    log: geolog.Log
    name: str = "driver-1"

    async def stage(
        self,
        rows: Rows,
        *,
        batch: int = 0,
        stream: str = STREAM,
        after_each: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> StagedPart:
        """Stage rows as a task does."""
        access = self.log.access
        catalog = StreamCatalog(access.metadata, access.paths)
        record = await catalog.read(StreamName.parse(stream))
        async with open_staging_writer(
            access, record, SINK, batch=batch, run=self.name, config=PartitionConfig()
        ) as writer:
            for key, value in rows:
                writer.rows.add(value, key, None)
                await writer.send_full()
                await after_each()
            return await writer.seal()

    async def commit(
        self,
        batch: int,
        *parts: StagedPart,
        query: str = "",
        checkpoint: str = "",
        is_repeatable: bool = True,
        is_loss_accepted: bool = False,
    ) -> CommitReport:
        given = StagedBatch(
            batch,
            parts,
            copier=f"{self.name}-{self.log.access.rng.getrandbits(64)}",
            run=self.name,
            query=query,
            checkpoint=checkpoint,
            is_repeatable=is_repeatable,
            is_loss_accepted=is_loss_accepted,
        )
        return await SinkCommit(self.log, SINK).commit(given)

    async def abort(self) -> None:
        await SinkCommit(self.log, SINK).abort({self.name})

    async def listed_count(self) -> int:
        access = self.log.access
        sinks = SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)
        return len(await sinks.listed(SINK))

    async def is_there(self, part: StagedPart) -> bool:
        try:
            await self.log.access.ledgers.read_latest(part.ledger)
        except NoSuchLedgerError:
            return False
        return True

    async def values(self, stream: str = STREAM) -> list[bytes]:
        async with self.log.open_reader(stream) as reader:
            return [record.value async for record in reader]


def sinks_of(world: World) -> SinkCatalog:
    access = world.log.access
    return SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)


def rows_of(*values: str) -> Rows:
    return [(None, value.encode()) for value in values]


async def test_batches_are_copied_in_the_order_of_tasks_and_staging_goes(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        second, first = await driver.stage(rows_of("c")), await driver.stage(rows_of("a", "b"))
        report = await driver.commit(0, first, second)
        third = await driver.stage(rows_of("d"), batch=1)
        await driver.commit(1, third)

        assert report == CommitReport(records_count=3, is_as_given=True)
        assert await driver.values() == [b"a", b"b", b"c", b"d"]
        assert await driver.listed_count() == 0
        assert not await driver.is_there(third)


async def test_records_of_many_entries_arrive_with_their_keys_in_order(
    autojump_clock: MockClock,
) -> None:
    rows = [(b"key", b"%06d" % number * 1000) for number in range(300)]
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(0, await driver.stage(rows))
        async with world.log.open_reader(STREAM) as reader:
            found = [(record.key, record.value) async for record in reader]

    assert found == rows


async def test_keys_choose_partitions_as_the_writers_of_the_library_do(
    autojump_clock: MockClock,
) -> None:
    keys = [b"key %d" % number for number in range(20)]
    async with open_world() as world:
        driver = Driver(world.log)
        await world.log.create_stream("shop/many", survive="1 region", partitions=3)
        staged = await driver.stage([(key, key) for key in keys], stream="shop/many")
        await driver.commit(0, staged)
        async with world.log.open_reader("shop/many") as reader:
            found = {record.key: record.partition async for record in reader}

    assert found == {key: partition_of_key(key, 3) for key in keys}


async def test_a_batch_for_several_streams_reaches_each(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await world.log.create_stream("shop/more", survive="1 region")
        here, there = (
            await driver.stage(rows_of("a")),
            await driver.stage(rows_of("b"), stream="shop/more"),
        )
        await driver.commit(0, here, there, await driver.stage(rows_of("c")))

        assert await driver.values() == [b"a", b"c"]
        assert await driver.values("shop/more") == [b"b"]


async def test_a_lost_attempt_of_a_task_leaves_neither_records_nor_staging(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        lost = await driver.stage(rows_of("a"))  # Speculation: its answer came second.
        await driver.commit(0, await driver.stage(rows_of("a")))

        assert await driver.values() == [b"a"]
        assert await driver.listed_count() == 0
        assert not await driver.is_there(lost)


@pytest.mark.parametrize("died_after_ms", [0, 4, 8, 12, 16, 20, 25, 30])
async def test_a_restart_finishes_the_recorded_copy_and_drops_its_own_staging(
    autojump_clock: MockClock, died_after_ms: int
) -> None:
    """The driver dies at some moment of its commit; the next one brings the same batch."""
    values = [f"{number:04d}" for number in range(50)]
    async with open_world(seed=died_after_ms) as world:
        first, again = Driver(world.log, "first"), Driver(world.log, "again")
        parts = [await first.stage(rows_of(*values[at : at + 10])) for at in range(0, 50, 10)]
        with trio.move_on_after(died_after_ms / 1000):
            await first.commit(0, *parts)

        await again.commit(0, await again.stage(rows_of(*values)))
        await again.commit(1, await again.stage(rows_of("next"), batch=1))

        assert await again.values() == [value.encode() for value in [*values, "next"]]
        assert await again.listed_count() == 0


async def test_of_two_drivers_of_one_batch_at_once_one_wins_and_the_other_says_so(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west") as other_log:
        drivers = [Driver(world.log, "one"), Driver(other_log, "other")]
        outcomes: list[str] = []

        async def drive(driver: Driver) -> None:
            part = await driver.stage(rows_of("a", "b", "c"))
            try:
                await driver.commit(0, part)
            except geolog.ConflictError as refused:
                outcomes.append(str(refused))
            else:
                outcomes.append("wins")

        async with trio.open_nursery() as nursery:
            for driver in drivers:
                nursery.start_soon(drive, driver)

        [refusal] = [outcome for outcome in outcomes if outcome != "wins"]
        assert "another driver of" in refusal
        assert len(outcomes) == 2
        assert await drivers[0].values() == [b"a", b"b", b"c"]


async def test_a_driver_whose_staging_was_dropped_says_so(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        staged = await driver.stage(rows_of("a"))
        await driver.abort()

        with pytest.raises(geolog.ConflictError, match=r"staged for batch 0 .* is gone"):
            await driver.commit(0, staged)
        assert await driver.values() == []


@pytest.mark.parametrize("loser_batch", [0, 1, 2])
async def test_a_driver_that_ends_leaves_the_staging_of_the_one_that_goes_on(
    autojump_clock: MockClock, loser_batch: int
) -> None:
    """The loser is behind, at the same batch, or ahead. Spark lets it abort after any error."""
    async with open_world() as world:
        winner, loser = Driver(world.log, "winner"), Driver(world.log, "loser")
        await winner.commit(0, await winner.stage(rows_of("a")))
        for_next = await winner.stage(rows_of("b"), batch=1)
        lost = await loser.stage(rows_of("x"), batch=loser_batch)
        await loser.abort()
        await winner.commit(1, for_next)

        assert not await winner.is_there(lost)
        assert await winner.values() == [b"a", b"b"]
        assert await winner.listed_count() == 0


async def test_a_commit_leaves_what_another_driver_stages_for_the_next_batch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        behind, ahead = Driver(world.log, "behind"), Driver(world.log, "ahead")
        staged = await behind.stage(rows_of("a"))
        await ahead.commit(0, await ahead.stage(rows_of("a")))
        for_next = await ahead.stage(rows_of("b"), batch=1)
        await behind.commit(0, staged)
        await ahead.commit(1, for_next)

        assert await ahead.values() == [b"a", b"b"]
        assert await ahead.listed_count() == 0


async def test_a_task_that_fails_leaves_no_staging(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        with pytest.raises(geolog.TooLargeError):
            await driver.stage([(None, b"a" * 200_000), (None, b"a" * (17 << 20))])

        assert await driver.listed_count() == 0


async def test_a_driver_that_is_behind_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(7, await driver.stage(rows_of("a"), batch=7))
        staged = await driver.stage(rows_of("b"), batch=3)

        with pytest.raises(geolog.ConflictError, match=r"batch 3 .* is out of date: batch 7"):
            await driver.commit(3, staged)
        assert await driver.values() == [b"a"]


async def test_a_batch_write_under_one_name_is_done_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(0, await driver.stage(rows_of("a")), is_repeatable=False)
        staged = await driver.stage(rows_of("b"))

        with pytest.raises(geolog.ConflictError, match="has written its 1 records already"):
            await driver.commit(0, staged, is_repeatable=False)
        assert await driver.values() == [b"a"]


async def test_a_stream_that_is_sealed_under_the_job_fails_the_commit(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        staged = await driver.stage(rows_of("a"))
        await world.log.seal_stream(STREAM)

        with pytest.raises(geolog.SealedError, match=STREAM):
            await driver.commit(0, staged)
        await driver.abort()

        assert await driver.listed_count() == 0


async def test_an_aborted_job_leaves_no_staging(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        staged = await driver.stage(rows_of("a"))
        await driver.abort()

        assert await driver.listed_count() == 0
        assert not await driver.is_there(staged)
        assert await driver.values() == []


async def test_full_disks_fail_the_task_with_advice_and_a_later_run_goes_through(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        disks = [disk for node in world.cluster.nodes.values() for disk in node.disks]
        for disk in disks:
            disk.capacity_bytes -= await disk.free_bytes()
        await trio.sleep(2 * FREE_CHECK_S)
        with pytest.raises(geolog.NotEnoughNodesError, match=r"6 more .* read-only, .* full"):
            await driver.stage(rows_of("a"))
        for disk in disks:
            disk.capacity_bytes = DISK_BYTES
        await trio.sleep(2 * FREE_CHECK_S)
        await driver.commit(0, await driver.stage(rows_of("a")))

        assert await driver.values() == [b"a"]
        assert await driver.listed_count() == 0


async def test_disks_that_fill_up_under_a_task_fail_it_with_advice(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        disks = [disk for node in world.cluster.nodes.values() for disk in node.disks]

        async def fill() -> None:
            for disk in disks:
                disk.capacity_bytes -= await disk.free_bytes()
            await trio.sleep(2 * FREE_CHECK_S)

        with pytest.raises(geolog.NotEnoughNodesError, match="gets too few copies"):
            await driver.stage([(None, b"a" * 300_000)] * 3, after_each=fill)
        assert await driver.listed_count() == 0
