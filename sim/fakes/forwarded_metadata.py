"""Metadata that passes each request through one method and forwards it to other metadata."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Freshness,
    HeardTime,
    Metadata,
    Operation,
    Put,
    SessionState,
    Stored,
)

M = TypeVar("M", bound=Metadata)
T = TypeVar("T")


@attrs.define(eq=False)
class ForwardedMetadata(ABC, Generic[M]):
    """`Metadata` in front of `behind`, with the answers and the session of `behind`."""

    behind: M

    @abstractmethod
    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        """Carry out a request, which `request` describes; `send` asks the metadata behind."""

    async def _forward_nearby(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        """Carry out a request that one server can answer alone; by default, like any other."""
        return await self._forward(request, send)

    async def _forward_read(
        self, request: str, freshness: Freshness, send: Callable[[], Awaitable[T]]
    ) -> T:
        if freshness is Freshness.NEARBY:
            return await self._forward_nearby(request, send)
        return await self._forward(f"{request} {freshness.value}", send)

    @property
    def session_state(self) -> SessionState:
        """Current state of the session."""
        return self.behind.session_state

    @property
    def session_id(self) -> int:
        """Id of the session."""
        return self.behind.session_id

    @property
    def session_timeout_s(self) -> float:
        """The time-out agreed for the session."""
        return self.behind.session_timeout_s

    @property
    def time_heard(self) -> HeardTime | None:
        """The store's clock at the latest Put."""
        return self.behind.time_heard

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """Wait for a state other than `seen`."""
        return await self.behind.wait_state_change(seen)

    async def get(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored:
        """Read a node."""
        return await self._forward_read(
            f"get {path}",
            freshness,
            lambda: self.behind.get(path, changed=changed, freshness=freshness),
        )

    async def find(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        """Read a node, or None."""
        return await self._forward_read(
            f"find {path}",
            freshness,
            lambda: self.behind.find(path, changed=changed, freshness=freshness),
        )

    async def children(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> list[str]:
        """Names of the children."""
        return await self._forward_read(
            f"children {path}",
            freshness,
            lambda: self.behind.children(path, changed=changed, freshness=freshness),
        )

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        """Carry out all operations or none."""
        request = ", ".join(map(_words_of, operations)) or "nothing"
        return await self._forward(request, lambda: self.behind.multi(operations))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        """Create one node."""
        return await self._forward(
            _words_of(Create(path, data, is_ephemeral, is_sequential)),
            lambda: self.behind.create(
                path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential
            ),
        )

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Replace the content by compare-and-set."""
        return await self._forward(
            _words_of(Put(path, data, version)), lambda: self.behind.put(path, data, version)
        )

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete one node."""
        await self._forward(
            _words_of(Delete(path, version)), lambda: self.behind.delete(path, version)
        )

    async def ensure_path(self, path: str) -> None:
        """Create a node and its missing parents."""
        await self._forward(f"ensure {path}", lambda: self.behind.ensure_path(path))


def _words_of(operation: Operation) -> str:
    match operation:
        case Create(path, data, is_ephemeral):
            kind = "create-ephemeral" if is_ephemeral else "create"
            return f"{kind} {path} {len(data)}"
        case Put(path, data, version):
            return f"put {path} {len(data)} @{version}"
        case Delete(path, version):
            return f"delete {path} @{version}"
        case Check(path, version):
            return f"check {path} @{version}"
