"""Where a benchmark runs: a log, its streams and nodes, and a disk for the floor."""

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
    """All that a benchmark is given."""

    log: Log
    cluster: str
    zookeeper: str
    gateway: Address | None = None
    """Through which servers are reached, if there is one."""
    region: str | None
    """Where the benchmark stands; the owner of what it writes, and its readers."""
    streams: Sequence[str]
    write_quorum: int
    nodes: Sequence[Address]
    directory: Path
    """On the disk to measure."""
    data_dirs: Sequence[Path] = ()
    """Of the nodes, the one in the benchmark's region first; empty for a cluster elsewhere."""


@asynccontextmanager
async def open_writers(
    log: Log, streams: Sequence[str], *, in_flight_bytes: int
) -> AsyncIterator[list[Writer]]:
    """A writer for each stream; together they have so many bytes in flight."""
    share = max(IN_FLIGHT_BYTES_MIN, in_flight_bytes // len(streams))
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(log.open_writer(stream, in_flight_bytes=share))
            for stream in streams
        ]
