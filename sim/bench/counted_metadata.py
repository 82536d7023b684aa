"""Metadata that counts what is asked of it, and how much of that had to wait in turn."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from geolog.metadata.seam import Metadata, Operation, SessionState, Stored


@attrs.frozen
class Asked:
    """What something cost in metadata."""

    requests: int
    rounds: int
    """Of requests that waited for the answers of others: over a WAN each takes a round trip."""

    def __sub__(self, before: "Asked") -> "Asked":
        return Asked(self.requests - before.requests, self.rounds - before.rounds)


class CountedMetadata:
    """A metadata store seen through a counter.

    A request belongs to the round behind the last of which an answer has come: those that are
    under way together count as one round, however many they are.
    """

    def __init__(self, store: Metadata) -> None:
        self._store = store
        self._rounds_answered = 0
        self.by_kind: Counter[str] = Counter()

    @property
    def asked(self) -> Asked:
        """All until now."""
        return Asked(self.by_kind.total(), self._rounds_answered)

    @property
    def session_state(self) -> SessionState:
        """As the store says."""
        return self._store.session_state

    @property
    def session_id(self) -> int:
        """As the store says."""
        return self._store.session_id

    @property
    def session_timeout_s(self) -> float:
        """As the store says."""
        return self._store.session_timeout_s

    @contextmanager
    def _counted(self, kind: str) -> Iterator[None]:
        self.by_kind[kind] += 1
        begun_in = self._rounds_answered + 1
        yield
        self._rounds_answered = max(self._rounds_answered, begun_in)

    async def get(self, path: str, *, changed: trio.Event | None = None) -> Stored:
        """Counted."""
        with self._counted("get"):
            return await self._store.get(path, changed=changed)

    async def find(self, path: str, *, changed: trio.Event | None = None) -> Stored | None:
        """Counted."""
        with self._counted("get"):
            return await self._store.find(path, changed=changed)

    async def children(self, path: str, *, changed: trio.Event | None = None) -> list[str]:
        """Counted."""
        with self._counted("children"):
            return await self._store.children(path, changed=changed)

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        """Counted as one."""
        with self._counted("multi"):
            return await self._store.multi(operations)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequential: bool = False,
    ) -> str:
        """Counted."""
        with self._counted("write"):
            return await self._store.create(
                path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential
            )

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Counted."""
        with self._counted("write"):
            return await self._store.put(path, data, version)

    async def delete(self, path: str, version: int | None = None) -> None:
        """Counted."""
        with self._counted("write"):
            await self._store.delete(path, version)

    async def ensure_path(self, path: str) -> None:
        """Counted as one, though it may take several."""
        with self._counted("write"):
            await self._store.ensure_path(path)

    async def sync(self, path: str) -> None:
        """Counted."""
        with self._counted("sync"):
            await self._store.sync(path)

    async def wait_state_change(self, seen: SessionState) -> SessionState:
        """As the store says."""
        return await self._store.wait_state_change(seen)
