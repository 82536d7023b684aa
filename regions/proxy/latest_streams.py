"""Streams as they are now: one read answers all who asked for the stream before it began.

Such a read asks ZooKeeper's leader. Clients that open a stream may need it, and are never
refused, so it must not cost more, however many they are.
"""

import copy
from collections.abc import Awaitable, Callable

import attrs
import trio

from geolog.protocol.stream_state import StreamName, StreamRecord
from topology.errors import GeologError


@attrs.define
class _Asked:
    """Those that ask for one stream."""

    count: int = 0
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    outcome: StreamRecord | GeologError | None = None
    """Of the last read: an error is one, too, or those that ask would wait for each other."""
    begun: int = 0
    """When it began, in the order of all questions and reads."""


class LatestStreams:
    """Reads streams with everything that was written before they were asked for."""

    def __init__(self, read: Callable[[StreamName], Awaitable[StreamRecord]]) -> None:
        self._read = read
        self._asked: dict[StreamName, _Asked] = {}
        self._turn = 0

    def __repr__(self) -> str:
        return f"LatestStreams({len(self._asked)} asked for)"

    async def read(self, name: StreamName) -> StreamRecord:
        """The stream's settings. NoSuchStreamError, UnavailableError."""
        came = self._next_turn()
        asked = self._asked.setdefault(name, _Asked())
        asked.count += 1
        try:
            async with asked.lock:
                if asked.outcome is None or asked.begun < came:
                    asked.begun, asked.outcome = self._next_turn(), None
                    asked.outcome = await self._outcome(name)
                outcome = asked.outcome
            if isinstance(outcome, GeologError):
                raise copy.copy(outcome)  # Each with a traceback of its own.
            return outcome
        finally:
            asked.count -= 1
            if not asked.count:
                del self._asked[name]

    async def _outcome(self, name: StreamName) -> StreamRecord | GeologError:
        try:
            return await self._read(name)
        except GeologError as error:
            return error.with_traceback(None)  # It would hold all that led here.

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn
