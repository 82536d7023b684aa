"""A small temporary cluster for a benchmark: three regions with one node each."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sim.processes.cluster.local import LocalCluster, open_cluster
from sim.processes.cluster.place import check_space, fresh_directory
from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports

SHAPE = ClusterShape(nodes_per_region=1, zookeeper_count=1, storage_options=())
"""One ZooKeeper server suffices: none is on the path of an append, and each uses the cores."""


@asynccontextmanager
async def open_own_servers(
    data_dir: Path | None, *, needed_bytes: int, shape: ClusterShape = SHAPE
) -> AsyncIterator[LocalCluster]:
    """Start the cluster; at the end of the block, stop it and remove a temporary directory."""
    directory = (data_dir or fresh_directory()).absolute()
    try:
        check_space(directory, needed_bytes)
        with held_ports(shape.ports_count) as ports:
            plan = draw_plan(shape, cluster="bench", directory=directory, ports=ports)
            async with open_cluster(plan) as cluster:
                yield cluster
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def open_own_cluster(
    data_dir: Path | None, *, needed_bytes: int, shape: ClusterShape = SHAPE
) -> AsyncIterator[ClusterPlan]:
    """The same for callers that need only its plan."""
    async with open_own_servers(data_dir, needed_bytes=needed_bytes, shape=shape) as cluster:
        yield cluster.plan
