"""Cluster that a benchmark runs on: the named one, or a temporary one that it starts."""

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs

from geolog.cli.invocation import Invocation, tell
from geolog.cli.session import open_log
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.proxies.proxies import Via
from geolog.settings.sources import parse_address
from sim.processes.bench.own_cluster import SHAPE, open_own_servers
from sim.processes.bench.site import Site
from sim.processes.cluster.place import fresh_directory
from sim.processes.cluster.plan import ClusterPlan

_STREAMS = "bench/stream"
_PROXIED_STREAMS = "bench/proxied"
_SEGMENT_BYTES = 1 << 30


@attrs.frozen(kw_only=True)
class SiteWanted:
    """Requirements of a benchmark."""

    streams_count: int = 1
    data_dir: Path | None = None
    needed_bytes: int
    """Disk space, for a temporary cluster."""
    storage_options: Sequence[str] = ()
    """Options of the nodes of a temporary cluster."""
    is_proxied: bool = False
    """Whether writers through proxies are measured, too."""


@asynccontextmanager
async def open_site(invocation: Invocation, wanted: SiteWanted) -> AsyncIterator[Site]:
    """Open the log and create the streams; a temporary cluster ends with the block."""
    config = invocation.config
    if config.zookeeper:
        directory = wanted.data_dir or fresh_directory()
        try:
            async with (
                open_log(invocation, via="direct") as log,
                _proxied(wanted, lambda: open_log(invocation, via="proxy")) as proxied,
            ):
                streams = await _make_streams(log, _STREAMS, wanted.streams_count)
                yield Site(
                    log=log,
                    proxied=proxied,
                    proxied_streams=await _proxied_streams(log, wanted),
                    cluster=config.cluster,
                    zookeeper=config.zookeeper,
                    gateway=config.gateway,
                    region=config.region,
                    streams=streams,
                    write_quorum=(await log.describe_stream(streams[0])).write_quorum,
                    nodes=[parse_address(node.address) for node in await log.list_nodes()],
                    directory=directory,
                )
        finally:
            if wanted.data_dir is None:
                shutil.rmtree(directory, ignore_errors=True)
        return
    tell("starting three nodes in three regions and a ZooKeeper server")
    shape = attrs.evolve(
        SHAPE,
        storage_options=tuple(wanted.storage_options),
        proxies_per_region=1 if wanted.is_proxied else 0,
    )
    async with (
        open_own_servers(
            wanted.data_dir, needed_bytes=wanted.needed_bytes, shape=shape
        ) as cluster,
        _connected(cluster.plan, "direct") as log,
        _proxied(wanted, lambda: _connected(cluster.plan, "proxy")) as proxied,
    ):
        plan = cluster.plan
        storage = plan.of_kind("storage")
        streams = await _make_streams(log, _STREAMS, wanted.streams_count)
        yield Site(
            log=log,
            proxied=proxied,
            proxied_streams=await _proxied_streams(log, wanted),
            cluster=plan.cluster,
            zookeeper=plan.zookeeper,
            region=plan.regions[0],
            streams=streams,
            write_quorum=(await log.describe_stream(streams[0])).write_quorum,
            nodes=[parse_address(node.address) for node in await log.list_nodes()],
            directory=plan.directory,
            data_dirs=[server.data_dir for server in storage],
            node_pids=[pid for one in storage if (pid := cluster.servers[one.name].pid)],
        )


def _connected(plan: ClusterPlan, via: Via) -> AbstractAsyncContextManager[Log]:
    return connect(
        zookeeper=plan.zookeeper, cluster=plan.cluster, region=plan.regions[0], via=via
    )


@asynccontextmanager
async def _proxied(
    wanted: SiteWanted, open_one: Callable[[], AbstractAsyncContextManager[Log]]
) -> AsyncIterator[Log | None]:
    """The log whose writers go through proxies, if it is wanted."""
    if not wanted.is_proxied:
        yield None
        return
    async with open_one() as log:
        yield log


async def _proxied_streams(log: Log, wanted: SiteWanted) -> list[str]:
    count = wanted.streams_count if wanted.is_proxied else 0
    return await _make_streams(log, _PROXIED_STREAMS, count)


async def _make_streams(log: Log, name: str, count: int) -> list[str]:
    """Create streams of three copies, acknowledged once two regions have it on disk."""
    streams = [f"{name}-{number}" for number in range(count)]
    for stream in streams:
        await log.create_stream(
            stream,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            min_regions=2,
            segment_bytes=_SEGMENT_BYTES,
            if_not_exists=True,
        )
    return streams
