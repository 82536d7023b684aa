"""Cluster that a benchmark runs on: the named one, or a temporary one that it starts."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from geolog.cli.invocation import Invocation, tell
from geolog.cli.session import open_log
from geolog.cli.settings.sources import parse_address
from geolog.client.connect import connect
from geolog.client.log import Log
from sim.processes.bench.own_cluster import SHAPE, open_own_cluster
from sim.processes.bench.site import Site
from sim.processes.cluster.place import fresh_directory

_STREAMS = "bench/stream"
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


@asynccontextmanager
async def open_site(invocation: Invocation, wanted: SiteWanted) -> AsyncIterator[Site]:
    """Open the log and create the streams; a temporary cluster ends with the block."""
    config = invocation.config
    if config.zookeeper:
        directory = wanted.data_dir or fresh_directory()
        try:
            async with open_log(invocation) as log:
                streams = await _make_streams(log, wanted.streams_count)
                yield Site(
                    log=log,
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
    shape = attrs.evolve(SHAPE, storage_options=tuple(wanted.storage_options))
    async with (
        open_own_cluster(
            wanted.data_dir, needed_bytes=wanted.needed_bytes, shape=shape
        ) as plan,
        connect(zookeeper=plan.zookeeper, cluster=plan.cluster, region=plan.regions[0]) as log,
    ):
        streams = await _make_streams(log, wanted.streams_count)
        yield Site(
            log=log,
            cluster=plan.cluster,
            zookeeper=plan.zookeeper,
            region=plan.regions[0],
            streams=streams,
            write_quorum=(await log.describe_stream(streams[0])).write_quorum,
            nodes=[parse_address(node.address) for node in await log.list_nodes()],
            directory=plan.directory,
            data_dirs=[server.data_dir for server in plan.of_kind("storage")],
        )


async def _make_streams(log: Log, count: int) -> list[str]:
    """Create streams of three copies, acknowledged once two regions have it on disk."""
    streams = [f"{_STREAMS}-{number}" for number in range(count)]
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
