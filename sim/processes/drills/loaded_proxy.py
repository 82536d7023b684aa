"""A cluster with one proxy, for drills that load it: the common part.

The clients of a drill share the machine with the proxy, so what a drill calls capacity is that
of both together, at this load of the machine.
"""

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from geolog.transport.tcp import TcpTransport
from sim.processes.cluster.control import ask_control
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ClusterShape
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from topology.errors import UnavailableError

SHAPE = ClusterShape(
    regions=("a",),
    nodes_per_region=3,
    proxies_per_region=1,
    zookeeper_count=1,
    storage_options=(),
)
"""One proxy, and three nodes to write to."""

STREAM = "drill/loaded"

_SEGMENT_BYTES = 64 << 20
_SAMPLE_EVERY_S = 0.25
_ANSWER_S_MAX = 30.0
_USER_TIME = 11
"""Its field of /proc/PID/stat behind the name; that of the kernel's time is the next."""


@attrs.frozen
class HttpAnswer:
    """One answer over HTTP."""

    status: int
    head: bytes
    body: bytes


@attrs.frozen(kw_only=True)
class LoadedProxy:
    """The proxy that is loaded, as a drill sees it from outside."""

    websocket: Address
    http: Address
    pid: int
    log: Path

    async def ask(self, request: bytes) -> HttpAnswer:
        """Send one request on its own connection. ConnectionFailedError, UnavailableError."""
        with trio.move_on_after(_ANSWER_S_MAX):
            stream = await TcpTransport().connect(self.http)
            try:
                await stream.send([request])
                return _parsed(await _all_of(stream))
            finally:
                stream.close()
        raise UnavailableError(f"the proxy did not answer HTTP within {_ANSWER_S_MAX:g} s")

    async def get(self, path: str) -> HttpAnswer:
        """Get a path."""
        head = f"GET {path} HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\r\n"
        return await self.ask(head.encode())

    async def metric(self, name: str) -> float:
        """The value of a metric, over all labels. UnavailableError if it is not told."""
        page = await self.get("/metrics")
        values = [
            float(line.rpartition(" ")[2])
            for line in page.body.decode(errors="replace").splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        ]
        if not values:
            raise UnavailableError(f"/metrics answered {page.status}, without {name}")
        return sum(values)

    def memory_bytes(self) -> int:
        """Its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise UnavailableError(f"process {self.pid} has ended")

    def cpu_s(self) -> float:
        """The processor time that it has taken."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return sum(map(int, fields[_USER_TIME : _USER_TIME + 2])) / os.sysconf("SC_CLK_TCK")

    def tracebacks_count(self) -> int:
        """Tracebacks in its log."""
        return self.log.read_text(encoding="utf-8", errors="replace").count("Traceback")


@attrs.frozen
class CpuTimes:
    """Processor time at a moment: of the proxy, of this process, and of the whole machine."""

    at_s: float
    proxy_s: float
    clients_s: float
    machine_s: float

    @classmethod
    def now(cls, proxy: LoadedProxy) -> "CpuTimes":
        """The times now."""
        stat = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
        busy = sum(map(int, stat[1:4])) + sum(map(int, stat[6:9]))
        machine_s = busy / os.sysconf("SC_CLK_TCK")
        return cls(trio.current_time(), proxy.cpu_s(), time.process_time(), machine_s)

    def shares_since(self, before: "CpuTimes", name: str) -> dict[str, float]:
        """Figures of the part NAME: what each has used of one processor."""
        passed_s = self.at_s - before.at_s
        return {
            f"proxy_cpu_share_{name}": (self.proxy_s - before.proxy_s) / passed_s,
            f"clients_cpu_share_{name}": (self.clients_s - before.clients_s) / passed_s,
            f"machine_cpu_share_{name}": (self.machine_s - before.machine_s) / passed_s,
        }


@attrs.define
class MemorySamples:
    """Resident memory of the proxy over time."""

    proxy: LoadedProxy
    samples: list[int] = attrs.field(factory=list)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            with suppress(OSError, UnavailableError):  # Its end is found by what it answers.
                self.samples.append(self.proxy.memory_bytes())
            await trio.sleep(_SAMPLE_EVERY_S)

    @property
    def growth_bytes(self) -> int:
        """How much more it had at the most in the last half than in the first."""
        half = math.ceil(len(self.samples) / 2)
        return max(self.samples[half:], default=0) - max(self.samples[:half], default=0)

    def figures(self) -> dict[str, float]:
        """Least, most and growth, in MiB."""
        return {
            "memory_mib_min": min(self.samples, default=0) / (1 << 20),
            "memory_mib_max": max(self.samples, default=0) / (1 << 20),
            "memory_mib_growth": self.growth_bytes / (1 << 20),
        }


def proxy_of_cluster(cluster: LocalCluster) -> LoadedProxy:
    """The only proxy of a cluster of `SHAPE`."""
    (plan,) = cluster.plan.of_kind("proxy")
    return _proxy_of(cluster.servers[plan.name].describe())


async def proxy_of_demo(directory: Path) -> LoadedProxy:
    """The first proxy of the demo that runs in this directory. UnavailableError."""
    servers = await ask_control(directory, "ls", "all")
    return _proxy_of(next(each for each in servers if each["kind"] == "proxy"))


def _proxy_of(row: Mapping[str, object]) -> LoadedProxy:
    pid = row["pid"]
    if not isinstance(pid, int):
        raise UnavailableError(f"{row['name']} is not running")
    return LoadedProxy(
        websocket=Address.parse(str(row["address"])),
        http=Address.parse(str(row["http"])),
        pid=pid,
        log=Path(str(row["log"])),
    )


async def create_loaded_stream(cluster: DrilledCluster) -> None:
    """Create the stream that drills append to, unless an earlier one has."""
    async with connect_in(cluster, cluster.regions[0], via="direct") as log:
        if STREAM not in await log.list_streams(STREAM.partition("/")[0]):
            await log.create_stream(
                STREAM,
                ensemble_size=3,
                write_quorum=3,
                ack_quorum=2,
                min_regions=1,
                segment_bytes=_SEGMENT_BYTES,
            )


async def _all_of(stream: ByteStream) -> bytes:
    received = bytearray()
    buffer = bytearray(1 << 16)
    with suppress(ConnectionFailedError):
        while count := await stream.receive_into(buffer):
            received += buffer[:count]
    return bytes(received)


def _parsed(answer: bytes) -> HttpAnswer:
    head, _, body = answer.partition(b"\r\n\r\n")
    first = head.split(b" ", 2)
    if len(first) < 2 or not first[1].isdigit():
        raise UnavailableError(f"the proxy answered {answer[:100]!r} over HTTP")
    return HttpAnswer(int(first[1]), head, body)
