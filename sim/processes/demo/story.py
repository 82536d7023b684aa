"""The demo's story: write, lose a region, keep writing, change writers, read back, heal.

Each act reports its figures. The comparison of every byte read with the bytes given to the
writers decides the outcome.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from geolog.catalog.descriptions import SegmentDescription
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.reading.bounds import AtSequence, LastRecords
from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from sim.processes.cluster.health import make_healthy
from sim.processes.cluster.local import LocalCluster
from sim.processes.demo.comparison import Comparison
from sim.processes.demo.flights import flights_archive, read_flights
from sim.processes.demo.report import Stopwatch, StoryReport
from sim.processes.demo.screen import Screen
from topology.errors import (
    FencedError,
    InvalidArgumentError,
    OutcomeUnknownError,
    UnavailableError,
)

STREAM = "demo/flights"

STORY_S_MAX = 110.0
"""The whole demo must finish within 120 s."""

SEGMENT_BYTES = 4 << 20
"""Small, so that segments roll before and during the outage."""

IN_FLIGHT_BYTES = 1 << 20
"""Maximum unanswered bytes per writer: enough for its rate, few enough for low latency."""

RATE = 40_000
"""Flights per second given to a writer. This is below what it could take: the latencies of a
saturated writer only show the length of its queue."""

_TURN_S = 0.004
"""Interval at which the writer gets flights."""

WRITERS_COUNT = 3

# Boundaries of the acts, as shares of all flights. The first writer would write up to _HEAL_AT.
_KILL_AT, _TAKE_OVER_AT, _HEAL_AT = 0.3, 0.45, 0.85


async def tell_story(cluster: LocalCluster, screen: Screen) -> StoryReport:
    """Run the whole story. UnavailableError if it does not end in time."""
    if len(cluster.plan.regions) < 3:
        raise InvalidArgumentError(
            "the workload loses a region and continues, so it needs at least three regions:"
            " name more with --regions, or pass --no-workload"
        )
    archive = flights_archive()
    flights = await trio.to_thread.run_sync(lambda: list(read_flights(archive)))
    try:
        with trio.fail_after(STORY_S_MAX):
            return await _Story(cluster, screen, flights).run()
    except trio.TooSlowError as error:
        raise UnavailableError(
            f"the demo did not finish within {STORY_S_MAX:.0f} s: look at its logs in "
            f"{cluster.plan.directory}/logs (--keep preserves them)"
        ) from error


class _Story:
    """The acts, in order, and their results.

    The first region is lost. The first writer runs in the second region. The second writer
    takes over in the third region, where everything is read back. When the lost region
    returns, a third writer, in that region, writes the rest.
    """

    def __init__(self, cluster: LocalCluster, screen: Screen, flights: Sequence[bytes]) -> None:
        self._cluster = cluster
        self._screen = screen
        self._flights = flights
        self._lost, self._home, self._afar = cluster.plan.regions[:3]
        self._started_s = trio.current_time()
        self._comparison = Comparison(flights)
        self._watches = [Stopwatch("before the outage", self._floor_s(self._home))]
        self._acknowledged_count = 0
        self._acknowledged_changed = trio.Event()
        self._found_count = 0

    async def run(self) -> StoryReport:
        """Run all acts."""
        async with self._connect(self._afar) as afar:
            await afar.create_stream(STREAM, survive="1 region", segment_bytes=SEGMENT_BYTES)
            async with trio.open_nursery() as nursery:
                first_ended = trio.Event()
                nursery.start_soon(self._write_until_fenced, first_ended)
                await self._lose_region()
                await self._reached(_TAKE_OVER_AT)
                await self._take_over(afar, first_ended)
            await self._read_back(afar)
            await self._heal(afar)
            await self._read_back(afar)
            segments = await afar.list_segments(STREAM)
        return self._report(segments)

    async def _write_until_fenced(self, ended: trio.Event) -> None:
        """Run the first writer. It does not know that another will take over."""
        try:
            async with self._connect(self._home) as log, self._open_writer(log) as writer:
                await self._write(writer, range(self._mark(_HEAL_AT)))
        except* (FencedError, OutcomeUnknownError):
            pass  # The second writer finds its unanswered records in the log.
        finally:
            ended.set()

    async def _lose_region(self) -> None:
        await self._reached(_KILL_AT)
        written, took_s = self._acknowledged_count, trio.current_time() - self._started_s
        self._screen.happened(
            "good", "writing", f"{written:,} flights from {self._home} in {took_s:.1f} s"
        )
        floor_s = self._floor_s(self._home, without=self._lost)
        self._watches.append(Stopwatch("during it", floor_s))
        killed = await self._cluster.kill(self._lost)
        nodes = sum(server.plan.kind == "storage" for server in killed)
        self._screen.happened(
            "bad",
            "SIGKILL",
            f"{self._lost}: {nodes} storage nodes, {len(killed) - nodes} ZooKeeper server; "
            "writing continues",
        )

    async def _take_over(self, log: Log, first_ended: trio.Event) -> None:
        """Run the second writer from the end of the log to the heal mark."""
        started_s, first_end = trio.current_time(), self._mark(_HEAL_AT)
        async with self._open_writer(log) as writer:
            await first_ended.wait()
            end = await self._end_of(log)
            self._found_count = end - self._acknowledged_count
            self._screen.happened(
                "good",
                "taken over by",
                f"{self._afar} after {trio.current_time() - started_s:.1f} s at {end:,}; "
                f"first writer {'done' if end == first_end else 'fenced'}",
            )
            if self._found_count < 0:
                self._comparison.problem(
                    f"{self._acknowledged_count:,} flights were acknowledged, but the log ends"
                    f" at {end:,}"
                )
            await self._write(writer, range(end, first_end))

    async def _read_back(self, log: Log) -> None:
        """Read the records not yet read, from afar, and compare them byte for byte."""
        first, started_s = self._comparison.read_count, trio.current_time()
        async with log.open_reader(STREAM, start=AtSequence(first)) as reader:
            async for batch in reader.batches():
                self._comparison.add(batch)
        count, took_s = self._comparison.read_count - first, trio.current_time() - started_s
        self._screen.happened(
            "good",
            "read back",
            f"{count:,} flights in {took_s:.1f} s from {self._afar}"
            + (f", without {self._lost}" if not first else ""),
        )

    async def _heal(self, log: Log) -> None:
        started_s = trio.current_time()
        await self._cluster.restart(self._lost)
        answered_s = trio.current_time()
        async with self._connect(self._lost) as returned, self._open_writer(returned) as writer:
            self._screen.happened(
                "good",
                "rejoined",
                f"{self._lost} after {answered_s - started_s:.1f} s; it writes the rest",
            )
            mended = await make_healthy(log)
            self._screen.happened(
                "good",
                "repaired",
                f"{mended.copies_stored:,} copies, {mended.slots_moved} slots moved; healthy "
                f"after {trio.current_time() - started_s:.1f} s",
            )
            self._watches.append(Stopwatch("after it", self._floor_s(self._lost)))
            await self._write(writer, range(self._mark(_HEAL_AT), len(self._flights)))

    async def _write(self, writer: Writer, indices: range) -> None:
        """Append these flights; each must get its own number as its sequence."""
        pipeline = Pipeline(writer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push, pipeline, indices)
            expected = indices.start
            while answers := await pipeline.next_answers():
                now_s = trio.current_time()
                for answered in answers:
                    for receipt, started_s in zip(
                        answered.receipts(), answered.started_s, strict=True
                    ):
                        if receipt is None or receipt.sequence != expected:
                            self._comparison.problem(
                                f"flight {expected} was answered with {receipt}"
                            )
                        self._watches[-1].answered(started_s, now_s)
                        expected += 1
                    self._acknowledged_count += len(answered)
                self._acknowledged_changed.set()

    async def _push(self, pipeline: Pipeline, indices: range) -> None:
        """Give the writer its flights, a few per turn."""
        turn_s, count = trio.current_time(), round(RATE * _TURN_S)
        for first in range(indices.start, indices.stop, count):
            for index in range(first, min(first + count, indices.stop)):
                await pipeline.push(self._flights[index])
            turn_s += _TURN_S
            await trio.sleep_until(turn_s)
        pipeline.close()

    async def _reached(self, share: float) -> None:
        """Wait until this share of the flights is acknowledged."""
        while self._acknowledged_count < self._mark(share):
            self._acknowledged_changed = trio.Event()
            await self._acknowledged_changed.wait()

    async def _end_of(self, log: Log) -> int:
        """The sequence of the next record."""
        async with log.open_reader(STREAM, start=LastRecords(1)) as reader:
            return max([record.sequence + 1 async for record in reader], default=0)

    def _floor_s(self, region: str, *, without: str | None = None) -> float | None:
        """The minimum latency of an append: the round trip to the nearest other region."""
        wan = self._cluster.plan.wan
        return None if wan is None else wan.wan.nearest_s(region, without=without)

    def _mark(self, share: float) -> int:
        return round(len(self._flights) * share)

    def _open_writer(self, log: Log) -> AbstractAsyncContextManager[Writer]:
        return log.open_writer(STREAM, in_flight_bytes=IN_FLIGHT_BYTES)

    def _connect(self, region: str) -> AbstractAsyncContextManager[Log]:
        plan = self._cluster.plan
        return connect(
            zookeeper=plan.zookeeper,
            cluster=plan.cluster,
            region=region,
            gateway=plan.gateway,
        )

    def _report(self, segments: Sequence[SegmentDescription]) -> StoryReport:
        comparison = self._comparison
        written_count = self._acknowledged_count + max(0, self._found_count)
        if comparison.read_count != len(self._flights):
            comparison.problem(
                f"{comparison.read_count:,} of {len(self._flights):,} flights were read back"
            )
        writers_count = len({segment.owner_epoch for segment in segments})
        if writers_count != WRITERS_COUNT:
            comparison.problem(
                f"{writers_count} writers wrote the segments, not {WRITERS_COUNT}"
            )
        return StoryReport(
            region_lost=self._lost,
            source_count=len(self._flights),
            acknowledged_count=self._acknowledged_count,
            found_count=self._found_count,
            read_count=comparison.read_count,
            equal_count=comparison.equal_count,
            lost_count=written_count - comparison.equal_count,
            read_bytes=comparison.read_bytes,
            sha256=comparison.digest,
            segments_count=len(segments),
            writers_count=writers_count,
            latencies=tuple(watch.latencies() for watch in self._watches),
            problems=comparison.problems,
            took_s=trio.current_time() - self._started_s,
        )
