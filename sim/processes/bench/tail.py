"""Measures the time from a record's publication to readers at the tail, against its append.

One writer appends at a steady, light rate. Readers in the same region follow through their own
`Log`, in the same process, so one clock serves both ends. The figures therefore include the
cost of the readers. At the end the writer appends at the same rate without readers: what the
process takes less for a record is the processor time of its readers.
"""

import time
from collections.abc import Callable

import attrs
import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from sim.processes.bench.figures import Figure, LatencyHistogram, figure
from sim.processes.bench.site import Site
from topology.errors import UnavailableError

LATE_S = 10.0
"""Time limit for the last record to arrive after its append."""

_NUMBER_BYTES = 8
_TOLD_EVERY = 100


@attrs.frozen(kw_only=True)
class TailLoad:
    """Appends and readers of one run."""

    record_bytes: int
    rate_per_s: float
    readers_count: int
    duration_s: float

    @property
    def records_count(self) -> int:
        """Total number of records to append."""
        return max(1, round(self.rate_per_s * self.duration_s))


class _Run:
    """One run: when each record was published, answered and read."""

    def __init__(self, site: Site, load: TailLoad, *, filler: bytes) -> None:
        self._site = site
        self._load = load
        self._filler = filler
        self._published_s: list[float] = []
        self.appended = LatencyHistogram()
        self.delivered = LatencyHistogram()
        self._began_s = 0.0

    async def follow(self, log: Log, *, task_status: trio.TaskStatus[None]) -> None:
        """Read every record from the first one; started when that one has arrived."""
        async with log.open_reader(self._site.streams[0], follow=True) as reader:
            await anext(reader)
            task_status.started()
            async for record in reader:
                number = int.from_bytes(record.value[:_NUMBER_BYTES], "little")
                self.delivered.record(trio.current_time() - self._published_s[number])
                if number == self._load.records_count - 1:
                    return

    @property
    def processor_s(self) -> float:
        """Processor time of this process for each record since the first was due."""
        return (time.process_time() - self._began_s) / self._load.records_count

    async def publish(self, writer: Writer, progress: Callable[[int, int], None]) -> None:
        """Append each record when it is due; a slow append does not delay the next one."""
        pipeline, first_s = Pipeline(writer), trio.current_time()
        self._began_s = time.process_time()

        async def push() -> None:
            for number in range(self._load.records_count):
                await trio.sleep_until(first_s + number / self._load.rate_per_s)
                self._published_s.append(trio.current_time())
                value = number.to_bytes(_NUMBER_BYTES, "little") + self._filler
                await pipeline.push(value)
                if number % _TOLD_EVERY == 0:
                    progress(number, self._load.records_count)
            pipeline.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(push)
            while answers := await pipeline.next_answers():
                now_s = trio.current_time()
                for answered in answers:
                    for started_s in answered.started_s:
                        self.appended.record(now_s - started_s)


async def measure_tail(
    site: Site, load: TailLoad, *, filler: bytes, progress: Callable[[int, int], None]
) -> list[Figure]:
    """Append with readers at the tail. UnavailableError if a record does not arrive."""
    run = _Run(site, load, filler=filler)
    async with (
        connect(
            zookeeper=site.zookeeper,
            cluster=site.cluster,
            region=site.region,
            gateway=site.gateway,
        ) as log,
        site.log.open_writer(site.streams[0]) as writer,
    ):
        await writer.append(b"the first record: a reader that has it is ready")
        async with trio.open_nursery() as nursery:
            for _ in range(load.readers_count):
                await nursery.start(run.follow, log)
            await run.publish(writer, progress)
            nursery.cancel_scope.deadline = trio.current_time() + LATE_S
        if nursery.cancel_scope.cancelled_caught:
            raise UnavailableError(f"the readers did not get all records within {LATE_S:g} s")
        with_readers_s = run.processor_s
        alone = _Run(site, attrs.evolve(load, duration_s=load.duration_s / 4), filler=filler)
        await alone.publish(writer, progress)
    floor_ms = run.appended.milliseconds(99)
    per_reader_us = 1e6 * (with_readers_s - alone.processor_s) / load.readers_count
    return [
        *run.appended.figures("append"),
        *run.delivered.figures(
            "publish to read", p99_floor_ms=floor_ms, p99_goal="<= append p99 + 2 ms"
        ),
        figure("processor time per reader and record", per_reader_us, "µs", goal="<= 40 µs"),
    ]
