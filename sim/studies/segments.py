"""Measures the cost of opening, reading and truncating a partition with very many segments.

`python -P -m sim.studies.segments [N]` starts three real nodes and a ZooKeeper server, creates
a partition of N segments (default 100,000), and prints how much of ZooKeeper's memory and disk
they take. Then it prints, for each common action on the stream, its duration, its metadata
requests, and their rounds.
"""

import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import trio

from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.connect import open_log
from geolog.client.log import Log
from geolog.client.reading.bounds import EARLIEST, LATEST, AtSequence, Bound
from geolog.metadata.zookeeper import open_zookeeper
from geolog.partition.partition_retention import PartitionRetention
from geolog.protocol.retention import Clocks, RetentionPolicy
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.transport.tcp import TcpTransport
from sim.processes.bench.own_cluster import open_own_servers
from sim.processes.cluster.plan import ClusterPlan
from sim.studies.counted_metadata import CountedMetadata
from sim.studies.long_partition import SEGMENT_BYTES, SEGMENT_S, LongPartition, RealPlace
from sim.studies.open_ledgers import resident_bytes
from sim.studies.zookeeper_load import zookeeper_figures

_NEEDED_BYTES = 3 << 30
_HEAP = {"GEOLOG_SERVE_ZOOKEEPER_HEAP_BYTES_MAX": "1GiB"}
"""Two metadata nodes per segment do not fit the memory of a demo's server."""

_LONG_US = 10 * 365 * 86400 * 1_000_000
"""Longer than the lifetime of a run's segments."""

_STREAM = "bench/long"
_SEGMENT_BYTES_MIN = 64 << 10
_LISTED_COUNT = 100


@attrs.frozen
class SegmentsBench:
    """Runs actions one after the other and prints the cost of each."""

    log: Log
    metadata: CountedMetadata
    stream: StreamRecord
    places: list[RealPlace]
    segments_count: int

    async def run(self) -> None:
        """Run all actions; the last one truncates most of the segments."""
        await self._write()
        await self._read()
        await self._look()
        await self._cut_off()

    async def _measured(self, what: str, do: Callable[[], Awaitable[object]]) -> None:
        before, started_s = self.metadata.asked, trio.current_time()
        await do()
        took_s, asked = trio.current_time() - started_s, self.metadata.asked - before
        memory = resident_bytes(os.getpid()) / 1e6
        _say(
            f"{what}: {1e3 * took_s:,.1f} ms, {asked.requests:,} requests in {asked.rounds:,}"
            f" rounds; this process then holds {memory:,.0f} MB"
        )

    # The actions.

    async def _write(self) -> None:
        async with AsyncExitStack() as stack:
            writers = []

            async def open_writer() -> None:
                writers.append(await stack.enter_async_context(self.log.open_writer(_STREAM)))
                await writers[0].append(b"one more")

            async def roll() -> None:
                value = random.Random(0).randbytes(_SEGMENT_BYTES_MIN // 4)
                first = (await writers[0].append(value)).dlsn.segment
                while (await writers[0].append(value)).dlsn.segment == first:
                    pass

            await self._measured("open a writer, and append", open_writer)
            await self._measured("roll to the next segment", roll)

    async def _read(self) -> None:
        middle = self.places[1]
        for what, start in (
            ("earliest", EARLIEST),
            ("latest", LATEST),
            ("a sequence", middle.sequence),
            ("a time", middle.time),
            ("a transaction id", middle.transaction),
        ):
            await self._measured(f"open a reader at {what}", partial(self._read_one, start))

    async def _read_one(self, start: Bound) -> None:
        async with self.log.open_reader(_STREAM, start=start) as reader:
            async for _ in reader:
                return
        assert start == LATEST, f"nothing was read from {start}"

    async def _look(self) -> None:
        await self._measured(
            f"list the last {_LISTED_COUNT} segments",
            partial(self.log.list_segments, _STREAM, limit=_LISTED_COUNT),
        )
        await self._measured("list all segments", partial(self.log.list_segments, _STREAM))
        await self._measured("describe the stream", partial(self.log.describe_stream, _STREAM))

    async def _cut_off(self) -> None:
        age_s = self.segments_count * SEGMENT_S
        for what, policy in (
            ("age", RetentionPolicy(retention_s=2 * age_s)),
            ("size", RetentionPolicy(retention_bytes=1 << 60)),
        ):
            watched = self._retention(policy)
            retain = partial(self._retain, watched)
            await self._measured(f"retention by {what}, nothing goes", retain)
            await self._measured(f"retention by {what}, once more", retain)
        await self._measured("cut off half of them", self._truncate)
        await self._measured("cut off where there is nothing more to", self._truncate)
        by_age = self._retention(RetentionPolicy(retention_s=0.4 * age_s))
        await self._measured("retention of a tenth by age", partial(self._retain, by_age))
        kept_bytes = int(0.3 * self.segments_count) * SEGMENT_BYTES
        by_size = self._retention(RetentionPolicy(retention_bytes=kept_bytes))
        await self._measured("retention of a tenth by size", partial(self._retain, by_size))

    async def _truncate(self) -> None:
        middle = self.places[1].sequence.sequence
        await self.log.truncate_stream(_STREAM, before=AtSequence(middle))

    def _retention(self, policy: RetentionPolicy) -> PartitionRetention:
        return PartitionRetention(self.stream.partition(0), policy, self.log.access.partitions)

    async def _retain(self, watched: PartitionRetention) -> None:
        access = self.log.access
        # Everything was stored just now, but must count as old as its append times.
        now = Clocks(local_us=access.now_us(), metadata_us=access.now_us() + _LONG_US)
        first = await watched.first_kept(now)
        if first is not None:
            await access.partitions.trims.move(watched.name, first, now_us=access.now_us())
            await access.partitions.trims.drop_trimmed(watched.name)


@asynccontextmanager
async def _open_counted(plan: ClusterPlan) -> AsyncIterator[tuple[Log, CountedMetadata]]:
    """A log and its metadata."""
    async with open_zookeeper(plan.zookeeper) as store:
        metadata = CountedMetadata(store)
        async with open_log(
            metadata=metadata,
            transport=TcpTransport(),
            cluster=plan.cluster,
            region=plan.regions[0],
            who="bench",
            rng=random.Random(0),
            now_us=_now_us,
        ) as log:
            yield log, metadata


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.


async def measure_segments(count: int) -> None:
    """Create the segments and print the cost of all actions."""
    for name, value in _HEAP.items():
        os.environ.setdefault(name, value)
    async with open_own_servers(None, needed_bytes=_NEEDED_BYTES) as cluster:
        (zookeeper,) = cluster.named("zookeeper")
        async with _open_counted(cluster.plan) as (log, _):
            await log.create_stream(
                _STREAM,
                ensemble_size=3,
                write_quorum=3,
                ack_quorum=2,
                min_regions=2,
                segment_bytes=_SEGMENT_BYTES_MIN,
            )
            stream = await StreamCatalog(log.access.metadata, log.access.paths).read(
                StreamName.parse(_STREAM)
            )
            begins_us = _now_us() - (count + 100) * SEGMENT_S * 1_000_000
            made = LongPartition(log.access, stream, begins_us=begins_us)
            started_s = trio.current_time()
            places = [await made.write_real()]
            await made.make(count // 2 - 1)
            places.append(await made.write_real())
            await made.make(count - made.segments_count - 1)
            places.append(await made.write_real())
            _say(f"{made.segments_count:,} made in {trio.current_time() - started_s:.0f} s")
        started_s = trio.current_time()
        await cluster.restart("zookeeper")  # A restart writes a snapshot.
        _say(f"ZooKeeper started again with them in {trio.current_time() - started_s:.1f} s")
        for one in await zookeeper_figures(zookeeper):
            _say(f"{one.name}: {one.value:,g} {one.unit}")
        async with _open_counted(cluster.plan) as (log, metadata):
            await SegmentsBench(log, metadata, stream, places, count).run()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trio.run(measure_segments, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
