"""A stream is made again under a query's checkpoint and cursor: with the reader alone."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from trio.testing import MockClock

import geolog
from geolog.spark.options import parse_options
from geolog.spark.stream_reading import GeologStreamReader
from tests.pure.whole.clusters import open_world
from topology.errors import TrimmedError

STREAM = "shop/again"


def reader_of(**options: str) -> GeologStreamReader:
    given = {"zookeeper": "127.0.0.1:2181", "stream": STREAM, "commitCursor": "query"}
    return GeologStreamReader(parse_options(given | options, now_us=lambda: 0), ["value"])


async def fill(log: geolog.Log, records: int, *, partitions: int = 1) -> None:
    await log.create_stream(STREAM, survive="1 region", partitions=partitions)
    for partition in range(partitions):
        async with log.open_writer(f"{STREAM}#{partition}") as writer:
            await writer.append_many([b"%d" % number for number in range(records)])


@pytest.mark.parametrize("partitions", [1, 3])
async def test_the_cursor_stays_behind_the_query_when_its_stream_is_made_again(
    autojump_clock: MockClock, partitions: int
) -> None:
    async with open_world() as world:
        log = world.log
        await fill(log, 100, partitions=partitions)
        before = reader_of()
        read = await before.plan(log, await before.find_start(log), ReadAllAvailable())
        await log.seal_stream(STREAM)
        await log.delete_stream(STREAM)
        await fill(log, 5)

        with pytest.raises(TrimmedError, match=r"created again|deleted"):
            await reader_of().plan(log, read, ReadAllAvailable())
        after = reader_of(failOnDataLoss="false")
        read = await after.plan(log, read, ReadAllAvailable())
        await after.plan(log, read, ReadAllAvailable())
        async with log.open_writer(STREAM) as writer:
            await writer.append_many([b"unread"] * 10)

        assert (await log.describe_cursor(STREAM, "query")).lag_records == 10
