"""Measures a ZooKeeper server: its nodes, and the memory and disk they take."""

from pathlib import Path

import trio

from geolog.transport.seam import Address
from sim.processes.bench.figures import Figure, figure
from sim.processes.cluster.server import Server
from sim.studies.open_ledgers import resident_bytes


async def zookeeper_figures(server: Server) -> list[Figure]:
    """Current figures."""
    assert server.pid is not None
    facts = await _facts(Address.parse(server.plan.address))
    return [
        figure("ZooKeeper: nodes", facts["zk_znode_count"], ""),
        figure("ZooKeeper: paths and contents", facts["zk_approximate_data_size"] / 1e6, "MB"),
        figure("ZooKeeper: memory of its process", _java_bytes(server.pid) / 1e6, "MB"),
        figure(
            "ZooKeeper: largest snapshot", _largest_snapshot(server.plan.data_dir) / 1e6, "MB"
        ),
    ]


async def _facts(address: Address) -> dict[str, float]:
    """The server's own statistics."""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(b"mntr")
        said = b"".join([chunk async for chunk in stream]).decode()
    facts = {}
    for line in said.splitlines():
        name, _, value = line.partition("\t")
        if value.replace(".", "", 1).isdecimal():
            facts[name] = float(value)
    return facts


def _java_bytes(supervisor: int) -> int:
    """Resident memory of the Java process under our wrapper."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return sum(resident_bytes(int(child)) for child in children)


def _largest_snapshot(data_dir: Path) -> int:
    sizes = [path.stat().st_size for path in data_dir.glob("version-2/snapshot.*")]
    return max(sizes, default=0)
