"""A client far from the metadata store: requests take a while, and are recorded."""

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
"""Much longer than requests to storage nodes take, so the clock counts round trips."""


@attrs.define(eq=False)
class DistantMetadata(ForwardedMetadata[MemoryMetadata]):
    """A metadata session that adds a delay to reads and to all other requests."""

    read_s: float
    asked: list[str] = attrs.field(factory=list)
    """The requests and their times."""

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
    """Sequential round trips that a block needed to open."""

    metadata: DistantMetadata
    began_s: float = attrs.field(factory=trio.current_time)

    @property
    def trips(self) -> int:
        """Round trips until now; the `repr` shows all requests when a test fails."""
        return round((trio.current_time() - self.began_s) / TRIP_S)

    def __repr__(self) -> str:
        return "\n".join(["asked:", *self.metadata.asked])


@attrs.frozen
class DistantClient:
    """A client, and its distance from metadata."""

    log: Log
    metadata: DistantMetadata

    def count(self) -> Counted:
        """Start counting."""
        self.metadata.asked.clear()
        return Counted(self.metadata)


@asynccontextmanager
async def open_distant_client(
    cluster: InProcessCluster, *, is_read_nearby: bool, region: str = "us-east"
) -> AsyncIterator[DistantClient]:
    """Open a client with or without a metadata server nearby."""
    async with cluster.store.open_session() as near:
        metadata = DistantMetadata(near, 0.0 if is_read_nearby else TRIP_S)
        async with open_log(
            metadata=metadata,
            transport=cluster.network.transport("distant"),
            cluster="default",
            region=region,
            who="distant",
            rng=random.Random(0),
            now_us=cluster.now_us,
        ) as log:
            yield DistantClient(log, metadata)
