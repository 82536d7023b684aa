"""A batch for several streams, some of which are sealed or deleted before they have it all."""

import pytest
from trio.testing import MockClock

import geolog
from geolog.catalog.sinks import VersionedSink
from geolog.client.staging.sink_commit import SinkCommit
from geolog.protocol.sink_copy import NO_BATCH, NO_QUERY, StagedBatch, StagedPart
from tests.pure.whole.clusters import World, open_world
from tests.pure.whole.test_sinks import SINK, Driver, rows_of, sinks_of

STREAMS = ("logs/1", "logs/2", "logs/3")


class KilledCommit(SinkCommit):
    """Its driver is killed before it copies into this stream."""

    before = ""

    async def _copy_into(self, stream: str, held: VersionedSink) -> int:
        if stream == self.before:
            raise ZeroDivisionError
        return await super()._copy_into(stream, held)


async def stage_all(driver: Driver, *, batch: int = 0) -> list[StagedPart]:
    """One row for each stream, twice."""
    return [
        await driver.stage(rows_of(f"{stream} {batch} {turn}"), batch=batch, stream=stream)
        for turn in range(2)
        for stream in STREAMS
    ]


async def begin(world: World, *, killed_before: str, query: str = "one") -> None:
    """Make the streams, and leave a copy into them unfinished."""
    for stream in STREAMS:
        await world.log.create_stream(stream, survive="1 region")
    driver = Driver(world.log, "killed")
    given = StagedBatch(
        0,
        tuple(await stage_all(driver)),
        "killed",
        "killed",
        query,
        is_repeatable=query != NO_QUERY,
    )
    commit = KilledCommit(world.log, SINK)
    commit.before = killed_before
    with pytest.raises(ZeroDivisionError):
        await commit.commit(given)


async def counts(driver: Driver) -> list[int]:
    return [len(await driver.values(stream)) for stream in STREAMS]


async def test_a_sealed_stream_does_not_keep_the_others_from_their_rows(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        again = Driver(world.log, "again")
        await begin(world, killed_before="logs/1")
        parts = await stage_all(again)
        await world.log.seal_stream("logs/2")
        with pytest.raises(geolog.SealedError) as refused:
            await again.commit(0, *parts, query="one")
        first = await counts(again)
        left = await stage_all_but(again, "logs/2")
        await again.commit(0, *left, query="one", is_loss_accepted=True)
        await again.commit(
            1, await again.stage(rows_of("x"), batch=1, stream="logs/3"), query="one"
        )

        assert (first, await counts(again)) == ([2, 0, 2], [2, 0, 3])
        assert await again.listed_count() == 0
    assert "logs/2 is sealed" in str(refused.value)
    assert "only in part: 2 records for logs/2. Written: 2 records for logs/1, 2" in str(
        refused.value
    )
    assert ".option('failOnDataLoss', 'false')" in str(refused.value)
    assert "The rest of the records for these streams is left out" in caplog.text


async def stage_all_but(driver: Driver, left_out: str) -> list[StagedPart]:
    return [
        await driver.stage(rows_of(stream), stream=stream)
        for stream in STREAMS
        if stream != left_out
    ]


async def test_a_stream_that_has_all_of_its_rows_may_be_sealed_or_deleted(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        again = Driver(world.log, "again")
        await begin(world, killed_before="logs/3")
        parts = await stage_all(again)
        await world.log.seal_stream("logs/1")
        await world.log.delete_stream("logs/2")
        await again.commit(0, *parts, query="one")

        assert len(await again.values("logs/1")) == 2
        assert len(await again.values("logs/3")) == 2
        assert (await sinks_of(world).ensure(SINK)).record.is_copied


async def test_a_deleted_stream_gets_its_rows_once_it_is_created_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        again = Driver(world.log, "again")
        await begin(world, killed_before="logs/2")
        parts = await stage_all(again)
        await world.log.delete_stream("logs/2")
        with pytest.raises(geolog.NoSuchStreamError, match="Create the stream again"):
            await again.commit(0, *parts, query="one")
        await world.log.create_stream("logs/2", survive="1 region")
        await again.commit(0, *parts, query="one")

        assert await counts(again) == [2, 2, 2]


async def test_a_batch_write_says_which_rows_to_write_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        again = Driver(world.log, "again")
        await begin(world, killed_before="logs/2", query=NO_QUERY)
        parts = await stage_all(again)
        await world.log.seal_stream("logs/2")

        with pytest.raises(geolog.SealedError, match="to another stream, under another name"):
            await again.commit(0, *parts, query=NO_QUERY, is_repeatable=False)
        assert await counts(again) == [2, 0, 2]


async def test_a_batch_is_not_recorded_away_from_the_home_of_its_stream(
    autojump_clock: MockClock,
) -> None:
    """The copy would fail at each start; so the same test comes before anything is staged."""
    async with open_world() as world, world.cluster.open_client("eu-west") as away:
        await world.log.create_stream(
            "logs/1", mode="regional", home="us-east", ensemble_size=2, write_quorum=2
        )
        await world.log.check_writable("logs/1")
        driver = Driver(away)
        staged = await driver.stage(rows_of("a"), stream="logs/1")
        with pytest.raises(geolog.InvalidArgumentError, match="can be owned in its home"):
            await away.check_writable("logs/1")
        with pytest.raises(geolog.InvalidArgumentError, match="can be owned in its home"):
            await driver.commit(0, staged)
        assert (await sinks_of(world).ensure(SINK)).record.batch == NO_BATCH
        await Driver(world.log).commit(0, staged)

        assert await driver.values("logs/1") == [b"a"]
