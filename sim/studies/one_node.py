"""One real storage node, one ZooKeeper server, and a bare protocol connection to the node."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from geolog.ledger.nodes.connection import ConnectionConfig, NodeConnection
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from sim.processes.cluster.local import LocalCluster, open_cluster
from sim.processes.cluster.place import check_space, fresh_directory
from sim.processes.cluster.plan import ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports
from sim.processes.cluster.server import Server

CLUSTER = "bench"


@asynccontextmanager
async def open_one_node(
    data_dir: Path | None, *, needed_bytes: int, storage_options: tuple[str, ...] = ()
) -> AsyncIterator[LocalCluster]:
    """Start the servers; at the end of the block, stop them and remove their directory."""
    shape = ClusterShape(
        regions=("here",),
        nodes_per_region=1,
        zookeeper_count=1,
        storage_options=storage_options,
    )
    directory = (data_dir or fresh_directory()).absolute()
    try:
        check_space(directory, needed_bytes)
        with held_ports(shape.ports_count) as ports:
            plan = draw_plan(shape, cluster=CLUSTER, directory=directory, ports=ports)
            async with open_cluster(plan) as cluster:
                yield cluster
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def open_connection(node: Server) -> AsyncIterator[NodeConnection]:
    """Open a connection to the node."""
    host, _, port = node.plan.address.rpartition(":")
    address = Address(host, int(port))
    stream = await TcpTransport().connect(address)
    connection = NodeConnection(stream, ConnectionConfig(), str(address))
    ready = trio.Event()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await connection.run(cluster=CLUSTER, on_ready=lambda _: ready.set())

        nursery.start_soon(run)
        await ready.wait()
        yield connection
        nursery.cancel_scope.cancel(reason="the benchmark is over")
