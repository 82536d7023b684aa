"""Measures how a target catches up with a backlog while another stream on its link is live.

The link is capped far below the emulated bandwidth. One stream is paused while a backlog is
appended to it at home, and then resumed; records of a second stream are appended at a light
rate all the time, and a reader in the other region follows its mirror. The cap must be kept,
and used; the records of the second stream must not wait behind the backlog.
"""

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
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
from sim.processes.bench.own_cluster import open_own_servers
from sim.processes.cluster.plan import ClusterShape
from sim.processes.wan.conditions import LinkChange, Wan
from sim.processes.wan.control import ask_change

HOME, TARGET = "us-east", "eu-west"

_LATE, _LIVE = "bench/late", "bench/live"
_RECORD_BYTES = 64 << 10
_LIVE_RECORD_BYTES = 1 << 10
_LIVE_PACE_S = 0.02
_LOOK_S = 0.1
_SETTLE_S = 2.0
"""How long the live stream runs alone, before the backlog is let go."""

_SEGMENT_BYTES = 256 << 20
_IN_FLIGHT_BYTES = 16 << 20
_UNCAPPED = 4
"""The emulated bandwidth, as a multiple of the cap."""

_FROM, _TO = 0.1, 0.9
"""The part of the backlog during which the rate is measured: links start and end otherwise."""

_LIVE_LAG_S_MAX = 2.0
_STILL_S_MAX = 60.0


@attrs.frozen(kw_only=True)
class BacklogLoad:
    """The backlog, and the link that it goes over."""

    backlog_bytes: int
    cap_bytes_per_s: float
    round_trip_s: float
    seed: int


@attrs.define(eq=False)
class _LiveStream:
    """Records appended at a light rate, and when the mirror gave each."""

    appended_s: dict[int, float] = attrs.field(factory=dict)
    """When each record was answered at home, by its sequence."""
    delivered_s: dict[int, float] = attrs.field(factory=dict)
    moved: trio.Event = attrs.field(factory=trio.Event)

    def lags(self, from_s: float, end_s: float) -> LatencyHistogram:
        """From the answer at home to the delivery, of records answered between two times."""
        histogram = LatencyHistogram()
        for sequence, appended_s in self.appended_s.items():
            if from_s <= appended_s < end_s:
                histogram.record(max(0.0, self.delivered_s[sequence] - appended_s))
        return histogram

    async def append(self, writer: Writer, value: bytes) -> None:
        """Append until cancelled."""
        while True:
            receipt = await writer.append(value)
            self.appended_s[receipt.sequence] = trio.current_time()
            await trio.sleep(_LIVE_PACE_S)

    async def wait_delivered(self) -> None:
        """Wait until the mirror has given the last record."""
        with trio.fail_after(_STILL_S_MAX):
            while max(self.appended_s) not in self.delivered_s:
                self.moved = trio.Event()
                await self.moved.wait()

    async def follow(self, target: Log) -> None:
        """Follow the mirror until cancelled."""
        async with target.open_reader(_LIVE, start=LATEST, follow=True) as reader:
            async for record in reader:
                self.delivered_s[record.sequence] = trio.current_time()
                self.moved.set()


async def measure_backlog(
    load: BacklogLoad, *, data_dir: Path | None, tell: Callable[[str], None]
) -> list[Figure]:
    """Start a cluster of two regions, let a backlog gather, and watch it go."""
    shape = ClusterShape(
        regions=(HOME, TARGET),
        nodes_per_region=1,
        relays_per_region=1,
        zookeeper_count=1,
        wan=Wan.between((HOME, TARGET)),
        storage_options=(),
        relay_options=("--link-bandwidth", f"{load.cap_bytes_per_s:.0f}B/s"),
    )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_own_servers(data_dir, needed_bytes=4 * load.backlog_bytes, shape=shape)
        )
        plan = cluster.plan
        link = LinkChange(
            rtt_s=load.round_trip_s, bandwidth_bytes_per_s=_UNCAPPED * load.cap_bytes_per_s
        )
        await ask_change(plan.directory, HOME, TARGET, link, is_one_way=False)
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
        return await _measure(load, home, target, tell)


async def _measure(
    load: BacklogLoad, home: Log, target: Log, tell: Callable[[str], None]
) -> list[Figure]:
    rng = random.Random(load.seed)
    live = _LiveStream()
    async with AsyncExitStack() as stack:
        writers = [await _open(home, stack, stream) for stream in (_LATE, _LIVE)]
        await home.pause_relay(_LATE, targets=[TARGET])
        tell(f"appending a backlog of {load.backlog_bytes >> 20} MiB at home")
        records_count = await _append_backlog(writers[0], load.backlog_bytes, rng)
        following = await stack.enter_async_context(open_background())
        following.start_soon(live.follow, target)
        async with open_background() as appending:
            appending.start_soon(live.append, writers[1], rng.randbytes(_LIVE_RECORD_BYTES))
            await trio.sleep(_SETTLE_S)
            tell("the backlog goes over the link")
            await home.resume_relay(_LATE, targets=[TARGET])
            begun_s = trio.current_time()
            progress = await _watch(home, records_count)
            end_s = trio.current_time()
            appending.cancel_scope.cancel(reason="the backlog is gone")
        await live.wait_delivered()
        following.cancel_scope.cancel(reason="the mirror has all")
    alone, behind = live.lags(begun_s - _SETTLE_S / 2, begun_s), live.lags(begun_s, end_s)
    bytes_per_s = _rate(progress, records_count) * _RECORD_BYTES
    return [
        figure("backlog", load.backlog_bytes / 1e6, "MB"),
        figure("time until it was gone", end_s - begun_s, "s"),
        figure(
            "rate of the backlog",
            bytes_per_s / 1e6,
            "MB/s",
            floor=load.cap_bytes_per_s / 1e6,
            goal="the cap, within 5 %",
        ),
        figure("lag of the live stream alone, p99", alone.milliseconds(99), "ms"),
        figure("lag of the live stream meanwhile, p50", behind.milliseconds(50), "ms"),
        figure(
            "lag of the live stream meanwhile, p99",
            behind.milliseconds(99),
            "ms",
            floor=load.round_trip_s / 2 * 1e3,
            goal=f"<= {_LIVE_LAG_S_MAX * 1e3:.0f} ms",
        ),
        figure("lag of the live stream meanwhile, longest", behind.milliseconds(100), "ms"),
    ]


async def _open(home: Log, stack: AsyncExitStack, stream: str) -> Writer:
    """Make the stream, open its writer, and wait until the mirror has the first record."""
    await home.create_stream(
        stream,
        mode="regional",
        home=HOME,
        relay_to=[TARGET],
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        min_regions=1,
        segment_bytes=_SEGMENT_BYTES,
    )
    opening = home.open_writer(stream, in_flight_bytes=_IN_FLIGHT_BYTES, linger_s=0.0)
    writer = await stack.enter_async_context(opening)
    await writer.append(b"first")
    await _watch(home, 1, stream=stream)
    return writer


async def _append_backlog(writer: Writer, backlog_bytes: int, rng: random.Random) -> int:
    """Append so many bytes; how many records the stream has then."""
    count = max(1, backlog_bytes // _RECORD_BYTES)
    pipeline = Pipeline(writer)
    filler = rng.randbytes(_RECORD_BYTES)

    async def push() -> None:
        for number in range(count):  # No two are alike: nothing is to compress them.
            turn = number % _RECORD_BYTES
            await pipeline.push(filler[turn:] + filler[:turn])
        pipeline.close()

    async with open_background() as nursery:
        nursery.start_soon(push)
        while await pipeline.next_answers():
            pass
    return count + 1


async def _watch(
    home: Log, records_count: int, *, stream: str = _LATE
) -> list[tuple[float, int]]:
    """Wait until the mirror has so many records durably; how many it had, and when."""
    seen: list[tuple[float, int]] = []
    with trio.fail_after(_STILL_S_MAX) as patience:
        while True:
            [status] = await home.relay_status(stream)
            durable = status.durable_records or 0
            if not seen or durable > seen[-1][1]:
                patience.deadline = trio.current_time() + _STILL_S_MAX
                seen.append((trio.current_time(), durable))
            if durable >= records_count:
                return seen
            await trio.sleep(_LOOK_S)


def _rate(progress: list[tuple[float, int]], records_count: int) -> float:
    """Records in a second, over the middle of the backlog."""
    middle = [
        (at_s, count)
        for at_s, count in progress
        if _FROM * records_count <= count <= _TO * records_count
    ]
    if len(middle) < 2:  # A backlog that is gone at once: over all of it.
        middle = progress
    (from_s, first), (to_s, last) = middle[0], middle[-1]
    return (last - first) / max(to_s - from_s, _LOOK_S)
