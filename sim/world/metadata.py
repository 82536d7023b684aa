"""A process's metadata session in the world: a `MemoryMetadata` whose operations are traced."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.metadata.memory import MemoryMetadata
from geolog.metadata.rules import ensure_path_by_creates
from geolog.metadata.seam import Check, Create, Delete, Operation, Put, SessionState, Stored
from topology.errors import GeologError

T = TypeVar("T")

Note = Callable[[str, str], None]
"""Takes an event and its details."""


@attrs.define(eq=False)
class WorldMetadata:
    """`Metadata` of one process. What may befall its session is done to `session`."""

    session: MemoryMetadata
    _note: Note

    @property
    def session_state(self) -> SessionState:
        """What is known of the session now."""
        return self.session.session_state

    @property
    def session_id(self) -> int:
        """Names the session."""
        return self.session.session_id

    @property
    def session_timeout_s(self) -> float:
        """The time-out that was agreed for the session."""
        return self.session.session_timeout_s

    async def get(self, path: str, *, changed: trio.Event | None = None) -> Stored:
        """Read a node."""
        return await self._traced(f"get {path}", self.session.get(path, changed=changed))

    async def find(self, path: str, *, changed: trio.Event | None = None) -> Stored | None:
        """Read a node, or None."""
        return await self._traced(f"find {path}", self.session.find(path, changed=changed))

    async def children(self, path: str, *, changed: trio.Event | None = None) -> list[str]:
        """Names of the children."""
        return await self._traced(
            f"children {path}", self.session.children(path, changed=changed)
        )

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        """Do all or none."""
        asked = ", ".join(map(_words_of, operations))
        return await self._traced(asked or "nothing", self.session.multi(operations))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        """Make one node."""
        [made] = await self.multi([Create(path, data, is_ephemeral, is_sequential)])
        assert isinstance(made, str)
        return made

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Replace a content by compare-and-set."""
        [version_new] = await self.multi([Put(path, data, version)])
        assert isinstance(version_new, int)
        return version_new

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete one node."""
        await self.multi([Delete(path, version)])

    async def ensure_path(self, path: str) -> None:
        """Make a node and its missing parents."""
        await ensure_path_by_creates(self, path)

    async def sync(self, path: str) -> None:
        """Have later reads see all that was written before."""
        await self._traced(f"sync {path}", self.session.sync(path))

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """Wait for another state than `seen`."""
        return await self.session.wait_state_change(seen)

    async def _traced(self, asked: str, answer: Awaitable[T]) -> T:
        self._note("meta-ask", asked)
        try:
            answered = await answer
        except GeologError as error:
            self._note("meta-fail", f"{asked}: {type(error).__name__}")
            raise
        self._note("meta-answer", f"{asked}: {_size_of(answered)}")
        return answered


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


def _size_of(answered: object) -> str:
    match answered:
        case Stored(data, version):
            return f"{len(data)} @{version}"
        case list():
            return f"[{len(answered)}]"
        case _:
            return "-"
