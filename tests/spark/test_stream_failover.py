"""A query's checkpoint is ahead of a home that is lost: with the reader, and without Spark."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from trio.testing import MockClock

from geolog.spark.batch_reading import ReadTask
from geolog.spark.options import parse_options
from geolog.spark.stream_reading import GeologStreamReader
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import append, open_site, relay
from topology.errors import TrimmedError


def reader_of(**options: str) -> GeologStreamReader:
    given = {"zookeeper": "127.0.0.1:2181", "stream": STREAM} | options
    return GeologStreamReader(parse_options(given, now_us=lambda: 0), ["value"])


async def test_a_checkpoint_in_a_dead_branch_goes_on_at_the_fork(
    autojump_clock: MockClock,
) -> None:
    failing, passing = reader_of(), reader_of(failOnDataLoss="false")
    async with open_site() as site:
        await append(site.east, range(10))
        begin = await failing.find_start(site.east)
        ahead = await failing.plan(site.east, begin, ReadAllAvailable())
        again = await failing.plan(site.east, ahead, ReadAllAvailable())
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 23))

        with pytest.raises(TrimmedError, match=r"records 4 to 9, which .*diverged"):
            await failing.plan(site.west, ahead, ReadAllAvailable())
        behind = await passing.plan(site.west, ahead, ReadAllAvailable())
        rest = await passing.plan(site.west, behind, ReadAllAvailable())

    place = f"{STREAM}#0"
    assert again == ahead
    assert (ahead[place]["epoch"], ahead[place]["sequence"]) == (1, 10)
    assert (behind[place]["epoch"], behind[place]["sequence"]) == (2, 7)
    assert rest == behind
    [task] = passing.partitions(ahead, behind)
    assert isinstance(task, ReadTask)
    assert (task.span.first, task.span.end, task.span.home_epoch) == (4, 7, 2)
    assert passing.partitions(behind, behind) == []
