"""Measures appends of writers to real processes, against the disk without geolog.

Three loads: 1 KiB records and 64 KiB records with many in flight, and 1 KiB records one at a
time. Each load has one writer, or one writer per stream on many streams at once. After each of
the first two loads, the nodes report the size of their group writes. The floor then uses writes
of that size, from as many processes as there are nodes.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from geolog.client.log import Log
from geolog.client.writing.partition_batcher import BATCH_BYTES
from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from sim.processes.bench.bare_replicas import MESSAGE_BYTES, Kind, measure_bare_append
from sim.processes.bench.figures import Figure, LatencyHistogram, figure
from sim.processes.bench.floor import LATENCY_WRITE_BYTES, Floor, measure_floor
from sim.processes.bench.hop import measure_hop, measure_round_trip
from sim.processes.bench.site import Site, open_writers
from sim.studies.node_status import group_writes

FLOOR_S = 1.5
"""Duration of one round of the floor."""

FLOOR_ROUNDS_COUNT = 3

WARM_UP_S = 1.0
"""Appends of the first second do not count: connections open and Python's caches fill."""

_POOL_BYTES = 4 << 20

_TURN_RECORDS = 64
"""Records pushed between two checkpoints; a checkpoint costs as much as three records."""

Drive = Callable[[Writer, Sequence[bytes], float, LatencyHistogram], Awaitable[int]]
"""Appends with one writer for a while; returns the number of acknowledged records."""


@attrs.frozen(kw_only=True)
class Load:
    """The load of one phase."""

    name: str
    record_bytes: int
    in_flight_bytes: int
    is_one_at_a_time: bool = False
    floor_share_goal: float | None = None


@attrs.frozen(kw_only=True)
class Run:
    """The result of one phase."""

    load: Load
    records_count: int
    took_s: float
    latencies: LatencyHistogram
    group_bytes: int
    """Mean size of a node's group write, each with one sync."""

    @property
    def bytes_per_s(self) -> float:
        """Bytes of records acknowledged per second."""
        return self.records_count * self.load.record_bytes / self.took_s

    def with_round(self, other: "Run") -> "Run":
        """Both rounds of one load as one."""
        self.latencies.add(other.latencies)
        return attrs.evolve(
            self,
            records_count=self.records_count + other.records_count,
            took_s=self.took_s + other.took_s,
            group_bytes=(self.group_bytes + other.group_bytes) // 2,
        )


async def run_load(
    site: Site,
    load: Load,
    log: Log,
    streams: Sequence[str],
    *,
    duration_s: float,
    payloads: Sequence[bytes],
) -> Run:
    """Append for `duration_s` after a warm-up, with writers of `log`."""
    async with open_writers(log, streams, in_flight_bytes=load.in_flight_bytes) as writers:
        drive = _one_at_a_time if load.is_one_at_a_time else many_in_flight
        await _drive_all(drive, writers, payloads, WARM_UP_S, LatencyHistogram())
        for writer in writers:
            await writer.flush()
        before = await group_writes(site.nodes, cluster=site.cluster)
        latencies, started_s = LatencyHistogram(), trio.current_time()
        count = await _drive_all(drive, writers, payloads, duration_s, latencies)
        took_s = trio.current_time() - started_s
        after = await group_writes(site.nodes, cluster=site.cluster)
    written_bytes, groups_count = after[0] - before[0], after[1] - before[1]
    return Run(
        load=load,
        records_count=count,
        took_s=took_s,
        latencies=latencies,
        group_bytes=round(written_bytes / max(1, groups_count)),
    )


async def measure_append(
    site: Site,
    loads: Sequence[Load],
    *,
    duration_s: float,
    payloads_of: Callable[[int, int], Sequence[bytes]],
    tell: Callable[[str], None],
) -> list[Figure]:
    """Run all loads with their floors and return all figures."""
    figures: list[Figure] = []
    for load in loads:
        payloads = payloads_of(load.record_bytes, _POOL_BYTES)
        if site.proxied is None:
            tell(f"{load.name}: appending for {duration_s:.0f} s")
            run = await run_load(
                site, load, site.log, site.streams, duration_s=duration_s, payloads=payloads
            )
            proxied = None
        else:
            run, proxied = await _run_both_ways(
                site, load, site.proxied, duration_s=duration_s, payloads=payloads, tell=tell
            )
        size = LATENCY_WRITE_BYTES if load.is_one_at_a_time else run.group_bytes
        processes = 1 if load.is_one_at_a_time else len(site.nodes)
        tell(
            f"{load.name}: measuring the floor, {processes} x write and sync of {size:,} bytes"
        )
        floor = await _best_floor(site.directory, write_bytes=size, processes_count=processes)
        figures += _figures(site, run, floor)
        if load.is_one_at_a_time and load.record_bytes == MESSAGE_BYTES:
            tell(f"{load.name}: measuring replicas that only store and answer")
            figures += await _bare_figures(site, load)
        if proxied is not None:
            tell(f"{load.name}: measuring the WebSocket hop alone")
            figures += await _proxied_figures(run, proxied)
    return figures


async def _run_both_ways(
    site: Site,
    load: Load,
    proxied: Log,
    *,
    duration_s: float,
    payloads: Sequence[bytes],
    tell: Callable[[str], None],
) -> tuple[Run, Run]:
    """The load direct and through a proxy, each in two rounds: first, fourth; second, third.

    The first gigabytes of a run are the cheapest: later, copying into the page cache takes the
    kernel twice the time, at least on a virtual machine. One long round of each would compare
    that, too.
    """
    direct_round = partial(
        run_load,
        site,
        load,
        site.log,
        site.streams,
        duration_s=duration_s / 2,
        payloads=payloads,
    )
    proxied_round = partial(
        run_load,
        site,
        load,
        proxied,
        site.proxied_streams,
        duration_s=duration_s / 2,
        payloads=payloads,
    )
    tell(f"{load.name}: appending direct and through a proxy in turn, {2 * duration_s:.0f} s")
    direct = await direct_round()
    through = await proxied_round()
    through = through.with_round(await proxied_round())
    return direct.with_round(await direct_round()), through


async def _proxied_figures(direct: Run, proxied: Run) -> list[Figure]:
    """Figures of the way through a proxy, next to the direct one and the hop alone.

    A batch takes the hop and then the direct way, on the same cores: the floor of the
    throughput is as if it took both one after the other.
    """
    load, name = proxied.load, f"{proxied.load.name} via proxy"
    rate = figure(f"{name} rate", proxied.records_count / proxied.took_s, "records/s")
    if load.is_one_at_a_time:
        hop_ms = 1e3 * await measure_round_trip(
            message_bytes=load.record_bytes, duration_s=FLOOR_S
        )
        direct_ms = direct.latencies.milliseconds(50)
        return [
            rate,
            figure(f"{load.name} WebSocket hop p50", hop_ms, "ms"),
            *proxied.latencies.figures(
                name, p50_floor_ms=direct_ms + hop_ms, p50_goal=f"<= {direct_ms + 1:.3g} ms"
            ),
        ]
    hop = await measure_hop(
        message_bytes=BATCH_BYTES, in_flight_bytes=load.in_flight_bytes, duration_s=FLOOR_S
    )
    floor = 1 / (1 / direct.bytes_per_s + 1 / hop)
    goal = None if load.floor_share_goal is None else ">= 0.8 of the floor"
    return [
        rate,
        figure(f"{load.name} WebSocket hop throughput", hop / 1e6, "MB/s"),
        figure(
            f"{name} throughput",
            proxied.bytes_per_s / 1e6,
            "MB/s",
            floor=floor / 1e6,
            goal=goal,
        ),
        figure(f"{name} group write", proxied.group_bytes, "bytes"),
        *proxied.latencies.figures(name),
    ]


async def _best_floor(directory: Path, *, write_bytes: int, processes_count: int) -> Floor:
    """Best of a few short rounds, each after all writes were synced.

    A disk is slow for a while after taking gigabytes. A floor measured only then would flatter
    the run.
    """
    floors = []
    for _ in range(FLOOR_ROUNDS_COUNT):
        await trio.to_thread.run_sync(os.sync)
        floors.append(
            await measure_floor(
                directory,
                write_bytes=write_bytes,
                processes_count=processes_count,
                duration_s=FLOOR_S,
            )
        )
    best = max(floors, key=lambda floor: floor.bytes_per_s)
    return attrs.evolve(best, sync_p50_s=min(floor.sync_p50_s for floor in floors))


def _figures(site: Site, run: Run, floor: Floor) -> list[Figure]:
    load, name = run.load, run.load.name
    rate = figure(f"{name} rate", run.records_count / run.took_s, "records/s")
    if load.is_one_at_a_time:
        latencies = run.latencies.figures(
            name, p50_floor_ms=floor.sync_p50_s * 1e3, p50_goal="<= 4 x the floor"
        )
        return [rate, *latencies]
    goal = None if load.floor_share_goal is None else f">= {load.floor_share_goal} of the floor"
    throughput = figure(
        f"{name} throughput",
        run.bytes_per_s / 1e6,
        "MB/s",
        floor=floor.bytes_per_s / site.write_quorum / 1e6,
        goal=goal,
    )
    group = figure(f"{name} group write", run.group_bytes, "bytes")
    return [rate, throughput, group, *run.latencies.figures(name)]


async def _bare_figures(site: Site, load: Load) -> list[Figure]:
    kinds: dict[str, Kind] = {"plain sockets": "sockets", "trio": "trio"}
    return [
        figure(
            f"{load.name}, bare replicas on {name} p50",
            1e3
            * await measure_bare_append(
                site.directory, kind, replicas_count=site.write_quorum, duration_s=FLOOR_S
            ),
            "ms",
        )
        for name, kind in kinds.items()
    ]


async def _drive_all(
    drive: Drive,
    writers: Sequence[Writer],
    payloads: Sequence[bytes],
    duration_s: float,
    latencies: LatencyHistogram,
) -> int:
    """Drive all writers at once; return the number of acknowledged records."""
    counts: list[int] = []

    async def drive_one(writer: Writer) -> None:
        counts.append(await drive(writer, payloads, duration_s, latencies))

    async with trio.open_nursery() as nursery:
        for writer in writers:
            nursery.start_soon(drive_one, writer)
    return sum(counts)


async def many_in_flight(
    writer: Writer, payloads: Sequence[bytes], duration_s: float, latencies: LatencyHistogram
) -> int:
    """Append as much as the writer's window takes; the number of acknowledged records."""
    pipeline, count = Pipeline(writer), 0

    async def push() -> None:
        until_s, number = trio.current_time() + duration_s, 0
        while trio.current_time() < until_s:
            for _ in range(_TURN_RECORDS):
                await pipeline.push(payloads[number % len(payloads)])
                number += 1
            # Let answers be taken even if the window never fills.
            await trio.lowlevel.checkpoint()
        pipeline.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        while answers := await pipeline.next_answers():
            now_s = trio.current_time()
            for answered in answers:
                count += len(answered)
                for started_s in answered.started_s:
                    latencies.record(now_s - started_s)
    return count


async def _one_at_a_time(
    writer: Writer, payloads: Sequence[bytes], duration_s: float, latencies: LatencyHistogram
) -> int:
    until_s, number = trio.current_time() + duration_s, 0
    while (started_s := trio.current_time()) < until_s:
        await writer.append(payloads[number % len(payloads)])
        latencies.record(trio.current_time() - started_s)
        number += 1
    return number
