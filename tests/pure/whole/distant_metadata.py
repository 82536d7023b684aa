"""A client far from the metadata store: what is asked takes its time, and is written down."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.client.connect import open_log
from geolog.client.log import Log
from geolog.metadata.memory import MemoryMetadata
from geolog.metadata.seam import Operation, SessionState, Stored
from sim.in_process import InProcessCluster

TRIP_S = 0.1
"""Much longer than what storage nodes take here: the clock counts the trips in a row."""


@attrs.define(eq=False)
class DistantMetadata:
    """A session with the time that reads, and all else, take on the way."""

    near: MemoryMetadata
    read_s: float
    asked: list[str] = attrs.field(factory=list)
    """What was asked, and when."""

    @property
    def session_state(self) -> SessionState:
        return self.near.session_state

    @property
    def session_id(self) -> int:
        return self.near.session_id

    @property
    def session_timeout_s(self) -> float:
        return self.near.session_timeout_s

    async def get(self, path: str, *, changed: trio.Event | None = None) -> Stored:
        await self._travel(f"get {path}", self.read_s)
        return await self.near.get(path, changed=changed)

    async def find(self, path: str, *, changed: trio.Event | None = None) -> Stored | None:
        await self._travel(f"find {path}", self.read_s)
        return await self.near.find(path, changed=changed)

    async def children(self, path: str, *, changed: trio.Event | None = None) -> list[str]:
        await self._travel(f"children {path}", self.read_s)
        return await self.near.children(path, changed=changed)

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        what = ", ".join(f"{type(one).__name__} {one.path}" for one in operations)
        await self._travel(f"multi {what}", TRIP_S)
        return await self.near.multi(operations)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        await self._travel(f"create {path}", TRIP_S)
        return await self.near.create(
            path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential
        )

    async def put(self, path: str, data: bytes, version: int) -> int:
        await self._travel(f"put {path}", TRIP_S)
        return await self.near.put(path, data, version)

    async def delete(self, path: str, version: int | None = None) -> None:
        await self._travel(f"delete {path}", TRIP_S)
        await self.near.delete(path, version)

    async def ensure_path(self, path: str) -> None:
        await self._travel(f"ensure {path}", TRIP_S)
        await self.near.ensure_path(path)

    async def sync(self, path: str) -> None:
        await self._travel(f"sync {path}", TRIP_S)
        await self.near.sync(path)

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        return await self.near.wait_state_change(seen)

    async def _travel(self, what: str, trip_s: float) -> None:
        self.asked.append(f"{trio.current_time():9.3f} {what}")
        await trio.sleep(trip_s)


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
