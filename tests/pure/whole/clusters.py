"""Small clusters and helpers for tests of whole streams."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import attrs

import geolog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import LogConfig
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
STREAM = "shop/orders"


E = TypeVar("E", bound=Exception)


@attrs.define
class Ended(Generic[E]):
    """The error that ended a block."""

    error: E | None = None


@contextmanager
def ended_by(kind: type[E]) -> Iterator[Ended[E]]:
    """Run a block in which some step raises this error, bare rather than in a group."""
    ended: Ended[E] = Ended()
    try:
        yield ended
    except kind as error:
        ended.error = error
    else:
        raise AssertionError(f"the block was not ended by a {kind.__name__}")


@attrs.frozen
class World:
    """A cluster with one stream, a client, and the client's metadata session."""

    cluster: InProcessCluster
    log: geolog.Log
    session: MemoryMetadata


@asynccontextmanager
async def open_world(
    *,
    regions: dict[str, int] = REGIONS,
    segment_bytes: int = 1 << 20,
    config: LogConfig | None = None,
    seed: int = 0,
) -> AsyncIterator[World]:
    """Open regions of two nodes each, and a stream that survives the loss of one region."""
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(regions, seed=seed) as cluster,
        cluster.open_client(
            "us-east", host="client", config=config, on_session=sessions.append
        ) as log,
    ):
        await log.create_stream(STREAM, survive="1 region", segment_bytes=segment_bytes)
        yield World(cluster, log, sessions[0])


async def partition_of(
    log: geolog.Log, number: int = 0, *, stream: str = STREAM
) -> PartitionName:
    """A partition of the current stream of this name."""
    catalog = StreamCatalog(log.access.metadata, log.access.paths)
    return (await catalog.read(StreamName.parse(stream))).partition(number)


async def append_each(writer: geolog.Writer, values: Iterable[bytes]) -> list[geolog.Receipt]:
    """Append records one by one, so that each is an entry."""
    return [await writer.append(value) for value in values]


async def records_of(log: geolog.Log, **bounds: geolog.Bound) -> list[geolog.Record]:
    """Read all records from `start` to `stop`."""
    async with log.open_reader(STREAM, **bounds) as reader:  # type: ignore[arg-type]
        return [record async for record in reader]


async def values_of(log: geolog.Log, **bounds: geolog.Bound) -> list[bytes]:
    """Read the values of all records from `start` to `stop`."""
    return [record.value for record in await records_of(log, **bounds)]


async def move_home(world: World, home_epoch: int) -> StreamRecord:
    """Store another home epoch in the stream's record, as if its home had been lost."""
    catalog = StreamCatalog(world.log.access.metadata, world.log.access.paths)
    return await catalog.change(
        StreamName.parse(STREAM),
        lambda record: attrs.evolve(record, home_epoch=home_epoch, session_epoch=home_epoch),
    )


async def is_owned(log: geolog.Log) -> bool:
    """Whether the stream has a living owner."""
    (partition,) = (await log.describe_stream(STREAM)).partition_list
    return partition.owner_is_alive


def numbered(count: int, start: int = 0) -> list[bytes]:
    """`count` different values."""
    return [b"record %d" % number for number in range(start, start + count)]


async def die_before_the_lac_is_told(world: World) -> None:
    """Append three records, and kill the process before others learn that they are durable."""
    sessions: list[MemoryMetadata] = []
    async with (
        world.cluster.open_client("eu-west", host="dies", on_session=sessions.append) as log,
        log.open_writer(STREAM) as writer,
    ):
        await append_each(writer, numbered(3))
        for node_id in world.cluster.nodes:
            world.cluster.network.cut("dies", node_id)
        sessions[0].cut_off()
        raise ZeroDivisionError
