"""A process's metadata session in the world: a `MemoryMetadata` whose operations are traced."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from geolog.metadata.rules import ensure_path_by_creates
from geolog.metadata.seam import Stored
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from topology.errors import GeologError

T = TypeVar("T")

Note = Callable[[str, str], None]
"""Gets an event and its details."""


@attrs.define(eq=False)
class WorldMetadata(ForwardedMetadata[MemoryMetadata]):
    """The `Metadata` of one process. Faults strike the memory session behind it."""

    _note: Note

    async def ensure_path(self, path: str) -> None:
        """Create a node and its missing parents; each is traced."""
        await ensure_path_by_creates(self, path)

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        self._note("meta-ask", request)
        try:
            answer = await send()
        except GeologError as error:
            self._note("meta-fail", f"{request}: {type(error).__name__}")
            raise
        self._note("meta-answer", f"{request}: {_words_of(answer)}")
        return answer


def _words_of(answer: object) -> str:
    match answer:
        case Stored(data, version):
            return f"{len(data)} @{version}"
        case list():
            return f"[{len(answer)}]"
        case int():
            return f"@{answer}"
        case _:
            return "-"
