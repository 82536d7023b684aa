"""Drivers of one sink meet half copies, each other's names, and a record on its way."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.sinks import SinkCatalog
from geolog.client.staging.row_copier import RowCopier
from geolog.client.staging.sink_commit import SinkCommit
from geolog.protocol.sink_copy import NO_QUERY, StagedBatch, StagedLedger, StagedPart
from tests.pure.whole.clusters import STREAM, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of

VALUES = [f"{number:04d}" for number in range(50)]


@pytest.mark.parametrize("died_after_ms", [2, 3, 4, 5, 6])
async def test_a_batch_write_that_was_killed_is_finished_by_the_next_under_its_name(
    autojump_clock: MockClock, died_after_ms: int
) -> None:
    async with open_world(seed=died_after_ms) as world:
        first, again = Driver(world.log, "first"), Driver(world.log, "again")
        staged = await first.stage(rows_of(*VALUES))
        with trio.move_on_after(died_after_ms / 1000):
            await first.commit(0, staged, query=NO_QUERY, is_repeatable=False)
        await again.commit(
            0, await again.stage(rows_of(*VALUES)), query=NO_QUERY, is_repeatable=False
        )

        assert await again.values() == [value.encode() for value in VALUES]
        assert await again.listed_count() == 0


async def test_a_query_whose_checkpoints_were_deleted_is_another_one(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        before, after = Driver(world.log, "before"), Driver(world.log, "after")
        await before.commit(
            0, await before.stage(rows_of("a")), query="one", checkpoint="/checkpoint"
        )
        staged = await after.stage(rows_of("b"))

        with pytest.raises(geolog.ConflictError, match="they were deleted, or are on another"):
            await after.commit(0, staged, query="two", checkpoint="/checkpoint")
        assert await after.values() == [b"a"]


async def test_a_query_repeats_a_batch_with_other_rows_and_another_spelling(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that are as many are taken for the same ones: a query may make up its keys."""
    async with open_world() as world:
        first, again = Driver(world.log, "first"), Driver(world.log, "again")
        await first.commit(0, await first.stage(rows_of("a")), query="one", checkpoint="/c")
        report = await again.commit(
            0, await again.stage(rows_of("b")), query="one", checkpoint="file:/c"
        )

        assert not report.is_as_given
        assert await again.values() == [b"a"]
    assert "was repeated with other rows; those written before are kept" in caplog.text


async def test_a_batch_that_was_planned_again_with_more_rows_is_told(
    autojump_clock: MockClock,
) -> None:
    """The checkpoints were restored from a backup made before this batch."""
    async with open_world() as world:
        first, again = Driver(world.log, "first"), Driver(world.log, "again")
        await first.commit(0, await first.stage(rows_of("a")), query="one")
        staged = await again.stage(rows_of("a", "b"))
        with pytest.raises(geolog.ConflictError, match=r"1 records .* now it has 2 records"):
            await again.commit(0, staged, query="one")
        await again.commit(0, staged, query="one", is_loss_accepted=True)
        await again.commit(1, await again.stage(rows_of("c"), batch=1), query="one")

        assert await again.values() == [b"a", b"c"]


async def test_a_batch_write_does_not_take_the_rows_of_a_killed_one_for_its_own(
    autojump_clock: MockClock,
) -> None:
    """As a job that has the same name every day, and as many rows."""
    async with open_world() as world:
        killed, today = Driver(world.log, "killed"), Driver(world.log, "today")
        staged = await killed.stage(rows_of(*VALUES))
        with trio.move_on_after(0.003):
            await killed.commit(0, staged, query=NO_QUERY, is_repeatable=False)
        assert not (await sinks_of(world).ensure(SINK)).record.is_copied
        others = await today.stage(rows_of(*reversed([f"{one}x" for one in VALUES])))

        with pytest.raises(geolog.ConflictError, match="the 50 rows of this run are not"):
            await today.commit(0, others, query=NO_QUERY, is_repeatable=False)
        assert await today.values() == [value.encode() for value in VALUES]


async def test_two_batch_writes_at_once_under_one_name_are_told_the_truth(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west") as other:
        drivers = [Driver(world.log, "one"), Driver(other, "other")]
        told: dict[str, str] = {}

        async def write(driver: Driver) -> None:
            staged = await driver.stage(rows_of(*[f"{driver.name} {one}" for one in VALUES]))
            try:
                await driver.commit(0, staged, query=NO_QUERY, is_repeatable=False)
            except geolog.ConflictError as refused:
                told[driver.name] = str(refused)

        async with trio.open_nursery() as nursery:
            for driver in drivers:
                nursery.start_soon(write, driver)
        written = {value.decode().split()[0] for value in await drivers[0].values()}

    assert len(written) == 1
    [lost] = {"one", "other"} - written
    assert "rows of this run are not" in told[lost] or "already" in told[lost]


async def test_rows_in_another_order_and_in_other_parts_are_the_same_rows(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        killed, again = Driver(world.log, "killed"), Driver(world.log, "again")
        staged = await killed.stage(rows_of(*VALUES))
        with trio.move_on_after(0.003):
            await killed.commit(0, staged, query=NO_QUERY, is_repeatable=False)
        assert not (await sinks_of(world).ensure(SINK)).record.is_copied
        parts = [await again.stage(rows_of(*VALUES[at::2])) for at in (1, 0)]
        report = await again.commit(0, *parts, query=NO_QUERY, is_repeatable=False)

        assert report.is_as_given
        assert await again.values() == [value.encode() for value in VALUES]


async def test_a_run_without_rows_leaves_its_name_to_the_next(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        early, again = Driver(world.log, "early"), Driver(world.log, "again")
        await early.commit(0, query=NO_QUERY, is_repeatable=False)
        await again.commit(
            0, await again.stage(rows_of("a")), query=NO_QUERY, is_repeatable=False
        )

        assert await again.values() == [b"a"]


async def test_a_query_under_the_name_of_a_batch_write_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        driver = Driver(world.log)
        await driver.commit(
            0, await driver.stage(rows_of("a")), query=NO_QUERY, is_repeatable=False
        )
        staged = await driver.stage(rows_of("b"))

        with pytest.raises(geolog.ConflictError, match="is the name of a batch write"):
            await driver.commit(0, staged, query="one")


async def test_a_batch_for_a_sealed_stream_is_not_recorded_so_the_query_can_go_on(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.create_stream("shop/more", survive="1 region")
        driver, again = Driver(world.log, "first"), Driver(world.log, "again")
        here = await driver.stage(rows_of("a"))
        there = await driver.stage(rows_of("b"), stream="shop/more")
        await world.log.seal_stream(STREAM)
        with pytest.raises(geolog.SealedError, match=STREAM):
            await driver.commit(0, here, there)
        await driver.abort()
        await again.commit(0, await again.stage(rows_of("b"), stream="shop/more"))

        assert await again.values("shop/more") == [b"b"]


class InterruptedCommit(SinkCommit):
    """Another driver commits the batch before this one copies its second part."""

    other: Driver
    copies_count = 0

    async def _copy_part(self, copier: RowCopier, part: StagedPart, seq: int) -> None:
        self.copies_count += 1
        if self.copies_count == 2:
            await self.other.commit(0, await self.other.stage(rows_of("a", "b")))
        await super()._copy_part(copier, part, seq)


async def test_a_driver_that_is_overtaken_between_two_parts_says_so(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west") as other:
        slow, quick = Driver(world.log, "slow"), Driver(other, "quick")
        parts = (await slow.stage(rows_of("a")), await slow.stage(rows_of("b")))
        commit = InterruptedCommit(world.log, SINK)
        commit.other = quick

        with pytest.raises(geolog.ConflictError, match=r"another driver of .* took over"):
            await commit.commit(StagedBatch(0, parts, "slow", "slow"))
        assert await quick.values() == [b"a", b"b"]


async def test_an_abort_leaves_what_its_own_run_has_recorded_meanwhile(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was stopped in its commit, and the record arrives while it aborts."""
    async with open_world() as world:
        driver, again = Driver(world.log, "one"), Driver(world.log, "again")
        staged = await driver.stage(rows_of("a", "b"))
        listed = SinkCatalog.listed

        async def late(self: SinkCatalog, sink: str) -> list[StagedLedger]:
            monkeypatch.setattr(SinkCatalog, "listed", listed)
            with trio.move_on_after(0.005):
                await driver.commit(0, staged)
            record = (await self.ensure(SINK)).record
            assert (record.batch, record.is_copied) == (0, False)
            return await listed(self, sink)

        monkeypatch.setattr(SinkCatalog, "listed", late)
        await driver.abort()
        await again.commit(0, await again.stage(rows_of("a", "b")))

        assert await again.values() == [b"a", b"b"]


async def test_a_batch_whose_staging_has_expired_is_not_recorded(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        access = world.log.access
        late, again = Driver(world.log, "late"), Driver(world.log, "again")
        staged = await late.stage(rows_of("a"))
        await access.metadata.delete(access.paths.ledger(staged.ledger))  # As nodes do.

        with pytest.raises(geolog.ConflictError, match=r"is gone: .* or it expired"):
            await late.commit(0, staged)
        await again.commit(0, await again.stage(rows_of("a")))
        assert await again.values() == [b"a"]
        assert await again.listed_count() == 0


async def test_a_task_of_a_driver_that_is_behind_says_why_its_staging_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        ahead, behind = Driver(world.log, "ahead"), Driver(world.log, "behind")
        has_begun, is_done = trio.Event(), trio.Event()

        async def wait() -> None:
            has_begun.set()
            await is_done.wait()

        async def stage_slowly() -> None:
            with pytest.raises(geolog.ConflictError, match="another driver has written"):
                await behind.stage(rows_of("a"), after_each=wait)

        nursery.start_soon(stage_slowly)
        await has_begun.wait()
        await ahead.commit(0, await ahead.stage(rows_of("a")))
        is_done.set()
        assert await ahead.values() == [b"a"]


@pytest.mark.parametrize("is_trimmed", [True, False])
async def test_an_old_copy_is_finished_only_if_the_stream_remembers_its_writer(
    autojump_clock: MockClock, *, is_trimmed: bool
) -> None:
    """Drivers that fail meanwhile do not make it younger."""
    stream = "shop/short"
    async with open_world() as world:
        await world.log.create_stream(stream, survive="1 region", writer_retention_s=720.0)
        async with world.log.open_writer(stream) as writer:
            for number in range(3):
                await writer.append(b"%d" % number)
        first, again = Driver(world.log, "first"), Driver(world.log, "again")
        rows = rows_of(*VALUES)
        staged = await first.stage(rows, stream=stream)
        with trio.move_on_after(0.003):
            await first.commit(0, staged)
        assert not (await sinks_of(world).ensure(SINK)).record.is_copied
        if is_trimmed:
            await world.log.truncate_stream(stream, before=geolog.AtSequence(2))
        for _ in range(3):
            await trio.sleep(200)
            with trio.move_on_after(0.001):
                await again.commit(0, staged)
        await trio.sleep(200)

        if is_trimmed:
            with pytest.raises(geolog.DataLostError, match="left unfinished for too long"):
                await again.commit(0, await again.stage(rows, stream=stream))
        else:
            await again.commit(0, await again.stage(rows, stream=stream))
            found = await again.values(stream)
            assert found == [b"0", b"1", b"2", *(value.encode() for value in VALUES)]


@pytest.mark.parametrize("off_s", [-7200, 7200])
@pytest.mark.parametrize("slept_s", [200, 1000])
async def test_the_age_of_a_copy_does_not_depend_on_the_clocks_of_drivers(
    autojump_clock: MockClock, off_s: int, slept_s: int
) -> None:
    stream = "shop/short"
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", off_us=lambda: off_s * 10**6) as other,
    ):
        await world.log.create_stream(stream, survive="1 region", writer_retention_s=720.0)
        async with world.log.open_writer(stream) as writer:
            for number in range(3):
                await writer.append(b"%d" % number)
        await world.log.truncate_stream(stream, before=geolog.AtSequence(2))
        first, again = Driver(world.log, "first"), Driver(other, "again")
        staged = await first.stage(rows_of(*VALUES), stream=stream)
        with trio.move_on_after(0.003):
            await first.commit(0, staged)
        assert not (await sinks_of(world).ensure(SINK)).record.is_copied
        await trio.sleep(slept_s)
        for _ in range(2):  # Drivers that fail do not make it younger.
            with trio.move_on_after(0.01), suppress(geolog.DataLostError):
                await again.commit(0, staged)

        if slept_s > 720:
            with pytest.raises(geolog.DataLostError, match="left unfinished for too long"):
                await again.commit(0, staged)
        else:
            await again.commit(0, staged)


async def test_an_application_that_takes_the_stream_back_does_not_end_a_commit(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="application") as application,
        trio.open_nursery() as nursery,
    ):

        async def take_back() -> None:
            for _ in range(5):
                try:
                    async with application.open_writer(STREAM) as writer:
                        while True:
                            await writer.append(b"application")
                            await trio.sleep(0.002)
                except (geolog.FencedError, geolog.OutcomeUnknownError):
                    pass

        nursery.start_soon(take_back)
        await trio.sleep(1)
        driver = Driver(world.log)
        rows = [b"%d" % number * 300 for number in range(5000)]
        await driver.commit(0, await driver.stage([(None, value) for value in rows]))

        assert [one for one in await driver.values() if one != b"application"] == rows
