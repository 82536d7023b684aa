"""The site of a benchmark: a log, its streams and nodes, and a disk for the floor."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs

from geolog.client.log import Log
from geolog.client.writing.writer import Writer
from geolog.transport.seam import Address

IN_FLIGHT_BYTES_MIN = 256 << 10


@attrs.frozen(kw_only=True)
class Site:
    """Everything that a benchmark runs on."""

    log: Log
    """Its writers own their streams."""
    cluster: str
    zookeeper: str
    gateway: Address | None = None
    """Gateway to the servers, if any."""
    region: str | None
    """Region of the benchmark: of its writers and its readers."""
    streams: Sequence[str]
    proxied: Log | None = None
    """Its writers go through write proxies; None if that is not measured."""
    proxied_streams: Sequence[str] = ()
    write_quorum: int
    nodes: Sequence[Address]
    directory: Path
    """A directory on the disk to measure."""
    data_dirs: Sequence[Path] = ()
    """Data directories of the nodes, the one in the benchmark's region first; empty for a
    cluster on other machines."""
    node_pids: Sequence[int] = ()
    """Processes of the nodes; empty for a cluster on other machines."""


@asynccontextmanager
async def open_writers(
    log: Log, streams: Sequence[str], *, in_flight_bytes: int
) -> AsyncIterator[list[Writer]]:
    """Open a writer per stream; together they may have `in_flight_bytes` in flight."""
    share = max(IN_FLIGHT_BYTES_MIN, in_flight_bytes // len(streams))
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(log.open_writer(stream, in_flight_bytes=share))
            for stream in streams
        ]
