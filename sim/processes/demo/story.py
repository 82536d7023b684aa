"""The demo's story: write, lose a proxy, lose a region, change writers, read back, heal, query.

Each act reports its figures. The comparison of every byte read with the bytes given to the
writers decides the outcome.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

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
from sim.processes.demo.queried import Query, open_query
from sim.processes.demo.relayed import tell_relayed
from sim.processes.demo.report import (
    Latencies,
    QueryReport,
    RelayedReport,
    Stopwatch,
    StoryReport,
)
from sim.processes.demo.screen import Screen
from sim.processes.spark_program import has_spark
from topology.errors import (
    FencedError,
    InvalidArgumentError,
    OutcomeUnknownError,
    UnavailableError,
)

STREAM = "demo/flights"

STORY_S_MAX = 600.0
"""When a demo counts as hanging. One should finish within 120 s, and takes 80 to 90 s on two
idle cores; a machine that is busy with other work is given longer."""

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

WRITER_ID = "flights"
"""Id of all writers if they write through proxies: each begins a new session of it."""

_LOOK_EVERY_S = 0.02

_BEHIND_S_MAX = 0.1
"""How far a writer may be behind its rate: after an outage it does not catch up in a burst."""

# Boundaries of the acts, as shares of all flights. The first writer would write up to _HEAL_AT.
_PROXY_KILL_AT, _KILL_AT, _TAKE_OVER_AT, _HEAL_AT = 0.15, 0.3, 0.45, 0.85


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

    If there are proxies, all writers use them, and the one that owns the stream is killed first
    and started again. Then the first region is lost. The first writer runs in the second
    region. The second writer takes over in the third region, where everything is read back.
    When the lost region returns, a third writer, in that region, writes the rest.
    """

    def __init__(self, cluster: LocalCluster, screen: Screen, flights: Sequence[bytes]) -> None:
        self._cluster = cluster
        self._screen = screen
        self._flights = flights
        self._lost, self._home, self._afar = cluster.plan.regions[:3]
        self._started_s = trio.current_time()
        self._comparison = Comparison(flights)
        self._watches: list[Stopwatch] = []
        self._acknowledged_count = 0
        self._acknowledged_changed = trio.Event()
        self._found_count = 0
        self._writers_count = 0
        self._is_proxied = bool(cluster.plan.of_kind("proxy"))
        self._begin("before the kills", self._floor_s(self._home))

    async def run(self) -> StoryReport:
        """Run all acts."""
        async with self._connect(self._afar) as afar:
            await afar.create_stream(STREAM, survive="1 region", segment_bytes=SEGMENT_BYTES)
            async with trio.open_nursery() as nursery:
                first_ended = trio.Event()
                nursery.start_soon(self._write_until_fenced, first_ended)
                if self._is_proxied:
                    await self._lose_proxy(afar)
                await self._lose_region()
                await self._reached(_TAKE_OVER_AT)
                await self._take_over(afar, first_ended)
            await self._read_back(afar)
            async with AsyncExitStack() as stack:
                query = None
                if has_spark():  # It starts while the lost region returns.
                    opening = open_query(self._cluster.plan, self._home, STREAM)
                    query = await stack.enter_async_context(opening)
                await self._heal(afar)
                await self._read_back(afar)
                segments = await afar.list_segments(STREAM)
                queried = await self._query(query)
        relayed = None
        if self._cluster.plan.of_kind("relay"):
            relayed = await tell_relayed(self._cluster, self._screen, self._home, self._connect)
        return self._report(segments, relayed, queried)

    async def _query(self, query: Query | None) -> QueryReport | None:
        """Count the flights of each airline with Spark."""
        if query is None:
            self._screen.happened(
                "plain", "not queried", "PySpark is not installed: pip install 'geolog[spark]'"
            )
            return None
        found = await query.answer(self._flights)
        self._screen.happened(
            "bad" if found.problems else "good",
            "queried",
            f"{found.rows_count:,} flights with Spark in {found.region}, {found.took_s:.1f} s;"
            f" {found.own_share:.0%} from there",
        )
        return found

    async def _write_until_fenced(self, ended: trio.Event) -> None:
        """Run the first writer. It does not know that another will take over."""
        try:
            async with self._connect(self._home) as log, self._open_writer(log) as writer:
                await self._write(writer, range(self._mark(_HEAL_AT)))
        except* (FencedError, OutcomeUnknownError):
            pass  # The second writer finds its unanswered records in the log.
        finally:
            ended.set()

    async def _lose_proxy(self, log: Log) -> None:
        """Kill the proxy that owns the stream; start it when writing goes on."""
        await self._reached(_PROXY_KILL_AT)
        self._tell_written()
        owner = await self._owning_proxy(log)
        killed_s = trio.current_time()
        self._begin("proxy killed", self._floor_s(self._home), answered_s=killed_s)
        await self._cluster.kill(owner)
        self._screen.happened("bad", "SIGKILL", f"proxy {owner}, which owned the stream")
        successor = await self._successor(log, owner)
        self._acknowledged_changed = trio.Event()
        await self._acknowledged_changed.wait()
        self._screen.happened(
            "good",
            "went on",
            f"after {trio.current_time() - killed_s:.1f} s; {successor} owns the stream now",
        )
        await self._cluster.start(owner)

    async def _successor(self, log: Log, owner: str) -> str:
        """The next proxy that owns the stream."""
        while True:
            found = await self._owning_proxy(log)
            if found != owner:
                return found
            await trio.sleep(_LOOK_EVERY_S)

    async def _owning_proxy(self, log: Log) -> str:
        """The proxy that owns the stream."""
        (partition,) = (await log.describe_stream(STREAM)).partition_list
        words = (partition.owner or "").split()
        (name,) = [
            each.name for each in self._cluster.plan.of_kind("proxy") if each.name in words
        ]
        return name

    async def _lose_region(self) -> None:
        await self._reached(_KILL_AT)
        if not self._is_proxied:
            self._tell_written()
        floor_s = self._floor_s(self._home, without=self._lost)
        self._begin("region killed", floor_s, answered_s=trio.current_time())
        killed = await self._cluster.kill(self._lost)
        kinds = Counter(server.plan.kind for server in killed)
        proxies = f"{kinds['proxy']} proxies, " if self._is_proxied else ""
        self._screen.happened(
            "bad",
            "SIGKILL",
            f"{self._lost}: {kinds['storage']} storage nodes, {proxies}"
            f"{kinds['zookeeper']} ZooKeeper server",
        )

    def _begin(
        self, part: str, floor_s: float | None, *, answered_s: float | None = None
    ) -> None:
        """Begin a part of the story."""
        first = self._acknowledged_count + self._found_count
        self._watches.append(
            Stopwatch(part, floor_s, first_sequence=first, answered_s=answered_s)
        )

    def _tell_written(self) -> None:
        written, took_s = self._acknowledged_count, trio.current_time() - self._started_s
        self._screen.happened(
            "good", "writing", f"{written:,} flights from {self._home} in {took_s:.1f} s"
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
            self._begin("region is back", self._floor_s(self._lost))
            await self._write(writer, range(self._mark(_HEAL_AT), len(self._flights)))

    async def _write(self, writer: Writer, indices: range) -> None:
        """Append these flights; each must get its own number as its sequence."""
        pipeline = Pipeline(writer)
        self._writers_count += 1
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
            turn_s = max(turn_s + _TURN_S, trio.current_time() - _BEHIND_S_MAX)
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
        return log.open_writer(
            STREAM,
            writer_id=WRITER_ID if self._is_proxied else None,
            in_flight_bytes=IN_FLIGHT_BYTES,
        )

    def _connect(self, region: str) -> AbstractAsyncContextManager[Log]:
        plan = self._cluster.plan
        return connect(
            zookeeper=plan.zookeeper,
            cluster=plan.cluster,
            region=region,
            gateway=plan.gateway,
        )

    def _report(
        self,
        segments: Sequence[SegmentDescription],
        relayed: RelayedReport | None,
        queried: QueryReport | None,
    ) -> StoryReport:
        comparison = self._comparison
        for part in (relayed, queried):
            for problem in () if part is None else part.problems:
                comparison.problem(problem)
        written_count = self._acknowledged_count + max(0, self._found_count)
        if comparison.read_count != len(self._flights):
            comparison.problem(
                f"{comparison.read_count:,} of {len(self._flights):,} flights were read back"
            )
        owners_count = len({segment.owner_epoch for segment in segments})
        # A proxy that was killed has a successor; a direct writer owns the stream itself.
        expected_count = 2 if self._is_proxied else WRITERS_COUNT
        if owners_count < expected_count:
            comparison.problem(
                f"{owners_count} owners wrote the segments, not {expected_count}"
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
            writers_count=self._writers_count,
            latencies=tuple(self._parts()),
            relayed=relayed,
            queried=queried,
            problems=comparison.problems,
            took_s=trio.current_time() - self._started_s,
        )

    def _parts(self) -> Iterator[Latencies]:
        """The latencies of each part, and the records lost in it."""
        ends = [*(watch.first_sequence for watch in self._watches[1:]), len(self._flights)]
        for watch, end in zip(self._watches, ends, strict=True):
            lost_count = self._comparison.missing_count(watch.first_sequence, end)
            yield watch.latencies(lost_count=lost_count)
