"""The cluster that reads are hedged on: two regions of two nodes, behind fronts and a WAN.

The reader's region has two replicas of every entry, and so has the other. Every node stands
behind a front, which can make it late; the emulated WAN carries what goes between the regions.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from geolog.client.connect import connect
from sim.processes.bench.hedge.node_front import FrontConditions, NodeFront, open_node_front
from sim.processes.bench.hedge.reader_process import (
    ReaderOrder,
    ReaderProcess,
    open_reader_process,
)
from sim.processes.cluster.local import LocalCluster, open_cluster
from sim.processes.cluster.place import check_space, fresh_directory
from sim.processes.cluster.plan import ClusterPlan, ClusterShape, ServerPlan, draw_plan
from sim.processes.cluster.ports import held_ports
from sim.processes.wan.conditions import LinkChange, Wan
from sim.processes.wan.control import ask_change

HERE, THERE = "us-east", "eu-west"
_STREAM = "bench/hedge"
_NEEDED_BYTES = 256 << 20


@attrs.frozen(kw_only=True)
class HedgeSite:
    """The running cluster, with its reader and what disturbs it."""

    cluster: LocalCluster
    front: NodeFront
    reader: ReaderProcess
    round_trip_s: float
    """Between the two regions."""

    @property
    def near_nodes(self) -> list[ServerPlan]:
        """The nodes in the reader's region."""
        return [node for node in self.all_nodes if node.region == HERE]

    @property
    def all_nodes(self) -> list[ServerPlan]:
        """The nodes of both regions."""
        return list(self.cluster.plan.of_kind("storage"))

    async def disturb(self, nodes: list[ServerPlan], conditions: FrontConditions) -> None:
        """Let these nodes answer like this, from now on."""
        await self.front.change([node.address for node in nodes], conditions)


@asynccontextmanager
async def open_hedge_site(
    data_dir: Path | None, *, entries_count: int, record_bytes: int, round_trip_s: float
) -> AsyncIterator[HedgeSite]:
    """Start everything, and store the entries; a temporary directory goes with the block."""
    directory = (data_dir or fresh_directory()).absolute()
    shape = ClusterShape(
        regions=(HERE, THERE),
        nodes_per_region=2,
        zookeeper_count=1,
        wan=Wan.between((HERE, THERE)),
        storage_options=(),
    )
    nodes_count = len(shape.regions) * shape.nodes_per_region
    try:
        check_space(directory, _NEEDED_BYTES)
        with held_ports(shape.ports_count + nodes_count) as ports:
            drawn = draw_plan(
                shape, cluster="bench", directory=directory, ports=ports[: shape.ports_count]
            )
            fronts = {
                node.address: f"127.0.0.1:{port}"
                for node, port in zip(
                    drawn.of_kind("storage"), ports[shape.ports_count :], strict=True
                )
            }
            async with (
                open_node_front(fronts) as front,
                open_cluster(_behind(drawn, fronts)) as cluster,
            ):
                # The entries are stored before the regions are apart: that is sooner.
                await _store(cluster.plan, entries_count, bytes(record_bytes))
                apart = LinkChange(rtt_s=round_trip_s)
                await ask_change(directory, HERE, THERE, apart, is_one_way=False)
                order = ReaderOrder(
                    zookeeper=cluster.plan.zookeeper,
                    cluster=cluster.plan.cluster,
                    region=HERE,
                    gateway=cluster.plan.gateway,
                    stream=_STREAM,
                )
                async with open_reader_process(order) as reader:
                    yield HedgeSite(
                        cluster=cluster, front=front, reader=reader, round_trip_s=round_trip_s
                    )
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


def _behind(plan: ClusterPlan, fronts: dict[str, str]) -> ClusterPlan:
    """The same plan, with every storage node behind its front."""
    assert plan.wan is not None
    servers = tuple(
        attrs.evolve(server, argv=(*server.argv, "--advertise", fronts[server.address]))
        if server.address in fronts
        else server
        for server in plan.servers
    )
    places = dict(plan.wan.places)
    for node, front in fronts.items():
        places[front] = places[node]
    return attrs.evolve(plan, servers=servers, wan=attrs.evolve(plan.wan, places=places))


async def _store(plan: ClusterPlan, entries_count: int, value: bytes) -> None:
    """Append one record at a time, so that each is an entry of its own."""
    async with connect(
        zookeeper=plan.zookeeper, cluster=plan.cluster, region=HERE, via="direct"
    ) as log:
        await log.create_stream(
            _STREAM, ensemble_size=4, write_quorum=4, ack_quorum=3, min_regions=2
        )
        async with log.open_writer(_STREAM) as writer:
            for _ in range(entries_count):
                await writer.append(value)
