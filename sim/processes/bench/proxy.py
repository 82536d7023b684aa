"""Measures what one write proxy takes: JSON, MessagePack and sealed batches.

Each load sends the same frame again and again over one WebSocket, with a bounded number of
frames unanswered, and counts the records of the answers. The floor of a load is what the same
frames cost without a log: 1/(1/codec + 1/hop). The codec decodes the frame and encodes its
answer in this process; the hop sends messages of that size to a server that only answers.
"""

import json
import pstats
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import attrs
import msgpack
import trio

from geolog.background import open_background
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.protocol.ids import DLSN
from geolog.transport.message_socket import MessageSocket
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import open_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.frames import FRAME_CODECS, JSON_FRAMES, MSGPACK_FRAMES, FrameCodec
from geolog.wire.session.messages import Ack, AckPosition, AppendRequest
from sim.processes.bench.append import many_in_flight
from sim.processes.bench.figures import Figure, LatencyHistogram, figure
from sim.processes.bench.hop import measure_hop
from sim.processes.cluster.local import open_cluster
from sim.processes.cluster.place import check_space, fresh_directory
from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports
from topology.errors import GeologError

SHAPE = ClusterShape(
    regions=("a",),
    nodes_per_region=3,
    proxies_per_region=1,
    zookeeper_count=1,
    storage_options=(),
)
"""One proxy, and three nodes to write to."""

LOADS_COUNT = 5
_FLOOR_S_MAX = 1.0

_STREAM = "bench/proxy"
_SEGMENT_BYTES = 1 << 30
_FRAME_RECORDS = 100
_GOAL = ">= 30,000 records/s"
_BATCH_BYTES = 256 << 10
_SHOWN_FUNCTIONS = 25
_ANSWER_HEAD = 24
"""The type of an answer is within so many of its first characters."""


@attrs.frozen(kw_only=True)
class ProxyLoad:
    """The load on a proxy."""

    record_bytes: int
    duration_s: float
    """Of each load."""
    frames_in_flight: int
    profile: Path | None
    """Where to write the profile of the proxy; None measures without one."""
    seed: int

    @property
    def floor_s(self) -> float:
        """Duration of each of the two floors of a load."""
        return min(_FLOOR_S_MAX, self.duration_s)


@attrs.frozen(kw_only=True)
class ProxyReport:
    """The figures of all loads, and the profile."""

    figures: list[Figure]
    profile: str
    """Functions of the proxy with the most time of their own; empty without a profile."""


@attrs.frozen
class _Frames:
    """One kind of frames, all alike."""

    name: str
    codec: FrameCodec
    frame: str | bytes
    records_count: int
    goal: str | None

    @property
    def frame_bytes(self) -> int:
        """Bytes of the frame on the wire, without the WebSocket's head."""
        return len(self.frame)  # JSON has only ASCII here.


async def measure_proxy(
    load: ProxyLoad, *, data_dir: Path | None, needed_bytes: int, tell: Callable[[str], None]
) -> ProxyReport:
    """Start a cluster with one proxy, and measure all loads one after another."""
    tell("starting three nodes, a write proxy and a ZooKeeper server")
    figures: list[Figure] = []
    async with _open_plan(load, data_dir, needed_bytes) as plan:
        async with open_cluster(plan) as cluster:
            (proxy,) = plan.of_kind("proxy")
            async with connect(
                zookeeper=plan.zookeeper, cluster=plan.cluster, region="a", via="proxy"
            ) as log:
                await log.create_stream(
                    _STREAM,
                    ensemble_size=3,
                    write_quorum=3,
                    ack_quorum=2,
                    min_regions=1,
                    segment_bytes=_SEGMENT_BYTES,
                )
                for frames in _all_frames(load):
                    tell(f"{frames.name}: {load.duration_s:g} s, then its floors")
                    figures += await _measure_frames(frames, load, Address.parse(proxy.address))
                tell(f"sealed batches: {load.duration_s:g} s, then their floor")
                figures += await _measure_batches(load, log)
            await cluster.stop(proxy.name)  # Its profile is written as it ends.
        return ProxyReport(figures=figures, profile=_shown(load.profile))


@asynccontextmanager
async def _open_plan(
    load: ProxyLoad, data_dir: Path | None, needed_bytes: int
) -> AsyncIterator[ClusterPlan]:
    directory = (data_dir or fresh_directory()).absolute()
    try:
        check_space(directory, needed_bytes)
        with held_ports(SHAPE.ports_count) as ports:
            plan = draw_plan(SHAPE, cluster="bench", directory=directory, ports=ports)
            if load.profile is not None:
                profiled = ("-m", "cProfile", "-o", str(load.profile.absolute()))
                servers = [
                    attrs.evolve(one, argv=(sys.executable, "-P", *profiled, *one.argv[2:]))
                    if one.kind == "proxy"
                    else one
                    for one in plan.servers
                ]
                plan = attrs.evolve(plan, servers=tuple(servers))
            yield plan
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


def _all_frames(load: ProxyLoad) -> list[_Frames]:
    rng = random.Random(load.seed)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    values = ["".join(rng.choices(letters, k=load.record_bytes)) for _ in range(_FRAME_RECORDS)]
    many: dict[str, object] = {"type": "append", "records": [{"value": one} for one in values]}
    one: dict[str, object] = {"type": "append", "value": values[0]}
    return [
        _Frames(f"{name}, {words}", codec, _packed(codec, document), count, goal)
        for document, words, count in (
            (many, f"{_FRAME_RECORDS} records a frame", _FRAME_RECORDS),
            (one, "one record a frame", 1),
        )
        for name, codec, goal in (
            ("JSON", JSON_FRAMES, _GOAL if count > 1 else None),
            ("MessagePack", MSGPACK_FRAMES, None),
        )
    ]


def _packed(codec: FrameCodec, document: dict[str, object]) -> str | bytes:
    if codec is JSON_FRAMES:
        return json.dumps(document, separators=(",", ":"))
    packed: bytes = msgpack.packb(document)
    return packed


async def _measure_frames(frames: _Frames, load: ProxyLoad, proxy: Address) -> list[Figure]:
    rate = await _rate_of(frames, load, proxy)
    codec_rate = await trio.to_thread.run_sync(_codec_rate, frames, load.floor_s)
    hop_bytes_per_s = await measure_hop(
        message_bytes=frames.frame_bytes,
        in_flight_bytes=frames.frame_bytes * load.frames_in_flight,
        duration_s=load.floor_s,
    )
    hop_rate = hop_bytes_per_s / frames.frame_bytes * frames.records_count
    return [
        figure(
            frames.name,
            rate,
            "records/s",
            floor=1 / (1 / codec_rate + 1 / hop_rate),
            goal=frames.goal,
        ),
        figure(f"{frames.name}: codec alone", codec_rate, "records/s"),
        figure(f"{frames.name}: WebSocket alone", hop_rate, "records/s"),
    ]


async def _rate_of(frames: _Frames, load: ProxyLoad, proxy: Address) -> float:
    """Records per second that the proxy has answered."""
    namespace, name = _STREAM.split("/")
    window = trio.Semaphore(load.frames_in_flight)
    async with open_websocket(
        TcpTransport(),
        proxy,
        f"/v1/streams/{namespace}/{name}/append",
        subprotocols=(frames.codec.subprotocol,),
        message_bytes_max=FRAME_BYTES_MAX,
    ) as socket:
        _check_type(await socket.receive(), "hello")
        answered = [0]
        async with open_background() as nursery:
            nursery.start_soon(_take_answers, socket, window, answered)
            started_s = trio.current_time()
            while trio.current_time() < started_s + load.duration_s:
                await window.acquire()
                await socket.send(frames.frame)
            for _ in range(load.frames_in_flight):  # The last answers.
                await window.acquire()
            took_s = trio.current_time() - started_s
        return answered[0] * frames.records_count / took_s


async def _take_answers(
    socket: MessageSocket, window: trio.Semaphore, answered: list[int]
) -> None:
    while True:
        _check_type(await socket.receive(), "ack")
        answered[0] += 1
        window.release()


def _check_type(message: str | bytes, type_: str) -> None:
    head = message[:_ANSWER_HEAD]
    is_it = type_ in head if isinstance(head, str) else type_.encode() in head
    if not is_it:
        raise UnexpectedAnswerError(f"the proxy answered {message[:500]!r} instead of {type_}")


class UnexpectedAnswerError(GeologError):
    """An append failed, so there is nothing to measure."""


def _codec_rate(frames: _Frames, duration_s: float) -> float:
    """Records per second of decoding the frame, and of encoding its answer, in one process."""
    codec, count = FRAME_CODECS[frames.codec.subprotocol], 0
    started_s = _now_s()
    while (took_s := _now_s() - started_s) < duration_s:
        request = codec.decode(frames.frame)
        assert isinstance(request, AppendRequest)
        positions = tuple(
            AckPosition(
                dlsn=DLSN(1, count, slot), epoch=1, sequence=slot, partition=0, duplicate=False
            )
            for slot in range(frames.records_count)
        )
        codec.encode(Ack(id=None, positions=positions, is_list=request.is_list))
        count += 1
    return count * frames.records_count / took_s


def _now_s() -> float:
    return time.perf_counter()  # noqa: TID251 - the codec runs in a thread, outside of trio.


async def _measure_batches(load: ProxyLoad, log: Log) -> list[Figure]:
    rng = random.Random(load.seed)
    payloads = [rng.randbytes(load.record_bytes) for _ in range(1000)]
    async with log.open_writer(_STREAM) as writer:
        started_s = trio.current_time()
        count = await many_in_flight(writer, payloads, load.duration_s, LatencyHistogram())
        took_s = trio.current_time() - started_s
    hop_bytes_per_s = await measure_hop(
        message_bytes=_BATCH_BYTES, in_flight_bytes=8 * _BATCH_BYTES, duration_s=load.floor_s
    )
    floor = hop_bytes_per_s / load.record_bytes
    return [
        figure("sealed batches", count / took_s, "records/s", floor=floor),
        figure("sealed batches: WebSocket alone", floor, "records/s"),
    ]


def _shown(profile: Path | None) -> str:
    if profile is None:
        return ""
    text = StringIO()
    statistics = pstats.Stats(str(profile), stream=text)
    statistics.strip_dirs().sort_stats("tottime").print_stats(_SHOWN_FUNCTIONS)
    return text.getvalue()
