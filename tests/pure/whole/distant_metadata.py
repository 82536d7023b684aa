"""A client far from the metadata store: what is asked takes its time, and is written down."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from geolog.client.connect import open_log
from geolog.client.log import Log
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster

T = TypeVar("T")

TRIP_S = 0.1
"""Much longer than what storage nodes take here: the clock counts the trips in a row."""


@attrs.define(eq=False)
class DistantMetadata(ForwardedMetadata[MemoryMetadata]):
    """A session with the time that reads, and all else, take on the way."""

    read_s: float
    asked: list[str] = attrs.field(factory=list)
    """What was asked, and when."""

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        return await self._after(TRIP_S, request, send)

    async def _forward_nearby(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        return await self._after(self.read_s, request, send)

    async def _after(self, trip_s: float, request: str, send: Callable[[], Awaitable[T]]) -> T:
        self.asked.append(f"{trio.current_time():9.3f} {request}")
        await trio.sleep(trip_s)
        return await send()


@attrs.define(repr=False)
class Counted:
    """How many trips in a row a block took to come to its first yield."""

    metadata: DistantMetadata
    began_s: float = attrs.field(factory=trio.current_time)

    @property
    def trips(self) -> int:
        """Until now; a test that fails tells all that was asked, by its `repr`."""
        return round((trio.current_time() - self.began_s) / TRIP_S)

    def __repr__(self) -> str:
        return "\n".join(["asked:", *self.metadata.asked])


@attrs.frozen
class DistantClient:
    """A client, and how far it is from metadata."""

    log: Log
    metadata: DistantMetadata

    def count(self) -> Counted:
        """Begin to count."""
        self.metadata.asked.clear()
        return Counted(self.metadata)


@asynccontextmanager
async def open_distant_client(
    cluster: InProcessCluster, *, is_read_nearby: bool
) -> AsyncIterator[DistantClient]:
    """A client to which a metadata server is near, or none."""
    async with cluster.store.open_session() as near:
        metadata = DistantMetadata(near, 0.0 if is_read_nearby else TRIP_S)
        async with open_log(
            metadata=metadata,
            transport=cluster.network.transport("distant"),
            cluster="default",
            region="us-east",
            who="distant",
            rng=random.Random(0),
            now_us=cluster.now_us,
        ) as log:
            yield DistantClient(log, metadata)
