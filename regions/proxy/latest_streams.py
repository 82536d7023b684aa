"""Streams as they are now: one read answers all who asked for the stream before it began.

Such a read asks ZooKeeper's leader. Clients that open a stream may need it, and are never
refused, so it must not cost more, however many they are.
"""

from collections.abc import Awaitable, Callable

import attrs
import trio

from geolog.protocol.stream_state import StreamName, StreamRecord


@attrs.define
class _Asked:
    """Those that ask for one stream."""

    count: int = 0
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    found: StreamRecord | None = None
    begun: int = 0
    """When the read that found it began, in the order of all questions and reads."""


class LatestStreams:
    """Reads streams with everything that was written before they were asked for."""

    def __init__(self, read: Callable[[StreamName], Awaitable[StreamRecord]]) -> None:
        self._read = read
        self._asked: dict[StreamName, _Asked] = {}
        self._turn = 0

    def __repr__(self) -> str:
        return f"LatestStreams({len(self._asked)} asked for)"

    async def read(self, name: StreamName) -> StreamRecord:
        """The stream's settings. NoSuchStreamError."""
        came = self._next_turn()
        asked = self._asked.setdefault(name, _Asked())
        asked.count += 1
        try:
            async with asked.lock:
                if asked.found is None or asked.begun < came:
                    asked.begun = self._next_turn()
                    asked.found = None  # The read may fail.
                    asked.found = await self._read(name)
                return asked.found
        finally:
            asked.count -= 1
            if not asked.count:
                del self._asked[name]

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn
