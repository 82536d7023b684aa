"""Measures a link between two regions over the WAN emulator: throughput, lag, and its price.

Records are appended at home at a given rate, and a reader follows the mirror in the other
region. The throughput is what the mirror makes durable in a second; its floor is the emulated
bandwidth, or the WebSocket hop alone if that is less. The lag is the time from the answer at
home to the delivery by the mirror. At last the target's relay is killed, and appends to the
relayed stream are compared with those to one that is not relayed, in turns.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from geolog.background import open_background
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.reading.bounds import LATEST
from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from sim.processes.bench.figures import Figure, LatencyHistogram, figure
from sim.processes.bench.hop import measure_hop
from sim.processes.bench.own_cluster import open_own_servers
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ClusterShape
from sim.processes.wan.conditions import LinkChange, Wan
from sim.processes.wan.control import ask_change

HOME, TARGET = "us-east", "eu-west"

_STREAM, _ALONE = "bench/relayed", "bench/alone"
_SEGMENT_BYTES = 1 << 30
_IN_FLIGHT_BYTES = 8 << 20
_OVERLOAD = 1.1
"""Rate of the throughput's load, as a share of the bandwidth."""

_TURN_S = 0.01
_LOOK_S = 0.1
_SETTLE_S = 2.0
"""Part of a load that is not measured: connections, windows and buffers fill."""

_LAG_BEYOND_S_MAX = 0.02
_SHARE_GOAL = 0.85
_PRICE_GOAL = 1.2
_PRICE_TURNS = 4
"""Turns of each of the two streams."""

_PRICE_TURN_S = 2.5
_PRICE_PACE_S = 0.004
_PRICE_RECORD_BYTES = 1 << 10
_MIRRORED_S_MAX = 60.0
_HOP_S = 1.0
_HOP_MESSAGE_BYTES = 64 << 10
_HOP_IN_FLIGHT_BYTES = 4 << 20


@attrs.frozen(kw_only=True)
class RelayLoad:
    """The link, and the load on it."""

    round_trips_s: tuple[float, ...]
    bandwidth_bytes_per_s: float
    record_bytes: int
    duration_s: float
    """Of each load."""
    seed: int


@attrs.define(eq=False)
class _Run:
    """One load: when each record was answered at home, and when the mirror delivered it."""

    count: int = 0
    answered_s: dict[int, float] = attrs.field(factory=dict)
    delivered_s: dict[int, float] = attrs.field(factory=dict)
    moved: trio.Event = attrs.field(factory=trio.Event)

    def lags(self, from_s: float) -> LatencyHistogram:
        """From the answer to the delivery, of records answered from then on."""
        histogram = LatencyHistogram()
        for number, answered_s in self.answered_s.items():
            if answered_s >= from_s:
                histogram.record(max(0.0, self.delivered_s[number] - answered_s))
        return histogram

    def delivered_per_s(self, from_s: float, end_s: float) -> float:
        """Records delivered in a second between two times."""
        count = sum(from_s <= at_s < end_s for at_s in self.delivered_s.values())
        return count / (end_s - from_s)


async def measure_relay(
    load: RelayLoad, *, data_dir: Path | None, tell: Callable[[str], None]
) -> list[Figure]:
    """Start a cluster of two regions, and measure its link."""
    figures = []
    hop_bytes_per_s = await measure_hop(
        message_bytes=_HOP_MESSAGE_BYTES,
        in_flight_bytes=_HOP_IN_FLIGHT_BYTES,
        duration_s=_HOP_S,
    )
    figures.append(figure("WebSocket hop alone", hop_bytes_per_s / 1e6, "MB/s"))
    async with _open_link(load, data_dir) as (cluster, home, target):
        for round_trip_s in load.round_trips_s:
            await ask_change(
                cluster.plan.directory,
                HOME,
                TARGET,
                LinkChange(
                    rtt_s=round_trip_s, bandwidth_bytes_per_s=load.bandwidth_bytes_per_s
                ),
                is_one_way=False,
            )
            figures += await _measure_link(
                load, home, target, round_trip_s, hop_bytes_per_s, tell
            )
        figures += await _measure_price(load, cluster, home, tell)
    return figures


@asynccontextmanager
async def _open_link(
    load: RelayLoad, data_dir: Path | None
) -> AsyncIterator[tuple[LocalCluster, Log, Log]]:
    needed_bytes = round(
        6 * load.duration_s * load.bandwidth_bytes_per_s * len(load.round_trips_s)
    )
    shape = ClusterShape(
        regions=(HOME, TARGET),
        nodes_per_region=1,
        relays_per_region=1,
        zookeeper_count=1,
        wan=Wan.between((HOME, TARGET)),
        storage_options=(),
    )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_own_servers(data_dir, needed_bytes=needed_bytes, shape=shape)
        )
        plan = cluster.plan
        home, target = [
            await stack.enter_async_context(
                connect(
                    zookeeper=plan.zookeeper,
                    cluster=plan.cluster,
                    region=region,
                    gateway=plan.gateway,
                    via="direct",
                )
            )
            for region in (HOME, TARGET)
        ]
        yield cluster, home, target


async def _make(log: Log, stream: str, *, relay_to: list[str]) -> None:
    await log.create_stream(
        stream,
        mode="regional",
        home=HOME,
        relay_to=relay_to,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        min_regions=1,
        segment_bytes=_SEGMENT_BYTES,
    )


async def _measure_link(
    load: RelayLoad,
    home: Log,
    target: Log,
    round_trip_s: float,
    hop_bytes_per_s: float,
    tell: Callable[[str], None],
) -> list[Figure]:
    name = f"{round_trip_s * 1e3:g} ms"
    bandwidth = load.bandwidth_bytes_per_s
    await _make(home, _STREAM, relay_to=[TARGET])
    try:
        async with home.open_writer(_STREAM, in_flight_bytes=_IN_FLIGHT_BYTES) as writer:
            await _relay_first(home, writer)
            tell(f"{name}: half load")
            half, half_from_s, _ = await _run(load, writer, target, bandwidth / 2)
            tell(f"{name}: full load")
            full, from_s, end_s = await _run(load, writer, target, bandwidth * _OVERLOAD)
    finally:
        await home.delete_stream(_STREAM)
    limit_bytes_per_s = min(bandwidth, hop_bytes_per_s)
    got_bytes_per_s = full.delivered_per_s(from_s, end_s) * load.record_bytes
    lags = half.lags(half_from_s)
    lag_ms_max = (round_trip_s / 2 + _LAG_BEYOND_S_MAX) * 1e3
    return [
        figure(
            f"{name} throughput",
            got_bytes_per_s / 1e6,
            "MB/s",
            floor=limit_bytes_per_s / 1e6,
            goal=f">= {_SHARE_GOAL:g}",
        ),
        figure(f"{name} lag p50 at half load", lags.milliseconds(50), "ms"),
        figure(
            f"{name} lag p99 at half load",
            lags.milliseconds(99),
            "ms",
            floor=round_trip_s / 2 * 1e3,
            goal=f"<= {lag_ms_max:g} ms",
        ),
    ]


async def _relay_first(home: Log, writer: Writer) -> None:
    """Append a record, and wait until the mirror has it: bridge, mirror and reader are up."""
    await writer.append(b"first")
    with trio.fail_after(_MIRRORED_S_MAX):
        while True:
            [status] = await home.relay_status(_STREAM)
            if status.durable_records:
                return
            await trio.sleep(_LOOK_S)


async def _run(
    load: RelayLoad, writer: Writer, target: Log, rate_bytes_per_s: float
) -> tuple[_Run, float, float]:
    """Append at a rate, and follow the mirror; the run, and the time that is measured."""
    run = _Run()
    rng = random.Random(load.seed)
    filler = rng.randbytes(load.record_bytes - 8)
    async with (
        target.open_reader(_STREAM, start=LATEST, follow=True) as reader,
        open_background() as nursery,
    ):

        async def follow() -> None:
            async for record in reader:
                if len(record.value) == load.record_bytes:
                    number = int.from_bytes(record.value[:8], "big")
                    run.delivered_s[number] = trio.current_time()
                    run.moved.set()

        nursery.start_soon(follow)
        from_s = trio.current_time() + _SETTLE_S
        end_s = from_s + load.duration_s
        await _append(writer, run, filler, rate_bytes_per_s, end_s)
        with trio.fail_after(_MIRRORED_S_MAX):
            while len(run.delivered_s) < run.count:
                run.moved = trio.Event()
                await run.moved.wait()
        nursery.cancel_scope.cancel(reason="the mirror has all")
    return run, from_s, end_s


async def _append(
    writer: Writer, run: _Run, filler: bytes, rate_bytes_per_s: float, end_s: float
) -> None:
    pipeline = Pipeline(writer)

    async def push() -> None:
        begin_s, size_bytes = trio.current_time(), len(filler) + 8
        while (now_s := trio.current_time()) < end_s:
            due = round((now_s - begin_s) * rate_bytes_per_s / size_bytes)
            while run.count < due:
                number = run.count
                run.count += 1
                await pipeline.push(number.to_bytes(8, "big") + filler)
            await trio.sleep(_TURN_S)
        pipeline.close()

    async with open_background() as nursery:
        nursery.start_soon(push)
        number = 0
        while answers := await pipeline.next_answers():
            now_s = trio.current_time()
            for answered in answers:
                for receipt in answered.receipts():
                    assert receipt is not None, "an append has failed"
                    run.answered_s[number] = now_s
                    number += 1


async def _measure_price(
    load: RelayLoad, cluster: LocalCluster, home: Log, tell: Callable[[str], None]
) -> list[Figure]:
    """Appends to a stream whose target is dead, next to those to one without a target."""
    tell("appends with a dead target")
    histograms = {_STREAM: LatencyHistogram(), _ALONE: LatencyHistogram()}
    await _make(home, _STREAM, relay_to=[TARGET])
    await _make(home, _ALONE, relay_to=[])
    value = random.Random(load.seed).randbytes(_PRICE_RECORD_BYTES)
    async with AsyncExitStack() as stack:
        writers = {
            stream: await stack.enter_async_context(home.open_writer(stream, linger_s=0.0))
            for stream in histograms
        }
        await _relay_first(home, writers[_STREAM])
        await writers[_ALONE].append(value)
        for one in cluster.plan.of_kind("relay"):
            if one.region == TARGET:
                await cluster.kill(one.name)
        await trio.sleep(_SETTLE_S)
        for turn in range(2 * _PRICE_TURNS):
            stream = (_STREAM, _ALONE)[turn % 2]
            end_s = trio.current_time() + _PRICE_TURN_S
            while (began_s := trio.current_time()) < end_s:
                await writers[stream].append(value)
                histograms[stream].record(trio.current_time() - began_s)
                await trio.sleep_until(began_s + _PRICE_PACE_S)
    p99_ms = {stream: one.milliseconds(99) for stream, one in histograms.items()}
    return [
        figure("append p99 without relay", p99_ms[_ALONE], "ms"),
        figure(
            "append p99 with a dead target",
            p99_ms[_STREAM],
            "ms",
            floor=p99_ms[_ALONE],
            goal=f"<= {_PRICE_GOAL:g}",
        ),
    ]
