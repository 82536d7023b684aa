"""Bounds what a bridge reads from logs ahead of what it sends, over all of its partitions.

A target that was away is behind in all partitions at once, and each of them is read from the
log by a task of its own. A few of them read at a time, in turns; one that has its share waits
until that was sent, and gives its turn to others. So memory does not grow with the number of
partitions.

Rules: PROTOCOL B8.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from relay.protocol.outgoing import OutgoingChannel

AHEAD_BYTES_MAX = 4 << 20
"""Bytes of one partition that are read ahead, if there are few."""

READERS_MAX = 8
"""Partitions that are read at a time."""

_IDLE_S = 1.0
"""How long one that finds nothing more keeps its turn if others wait."""


class LogsReadAhead:
    """Entries that the channels of one bridge have read and not sent."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._turns = trio.CapacityLimiter(READERS_MAX)
        self._wanting_count = 0
        self._bytes = 0
        self._counted: dict[OutgoingChannel, int] = {}
        """Bytes of each channel that reads, as counted in all."""
        self._readers_count: dict[OutgoingChannel, int] = {}
        """Tasks that read for each: one that was told to stop may end after the next began."""
        self._waiting: dict[trio.Event, OutgoingChannel] = {}
        self._idle: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        return (
            f"LogsReadAhead({self.bytes} of {self._bytes_max}, {len(self._counted)} channels)"
        )

    @property
    def bytes(self) -> int:
        """Bytes that were read and not sent."""
        return self._bytes

    @property
    def is_wanted(self) -> bool:
        """Whether others wait for a turn."""
        return self._wanting_count > 0

    def has_room(self, channel: OutgoingChannel) -> bool:
        """Whether the channel may read more now."""
        share_bytes = self._bytes_max // max(1, len(self._counted))
        if channel.fetched_bytes > min(AHEAD_BYTES_MAX, share_bytes):
            return False
        return self._bytes <= self._bytes_max

    async def wait_room(self, channel: OutgoingChannel, *, has_turn: bool = False) -> None:
        """Wait until the channel may read more; or, if it has a turn, until others want it."""
        while not self.has_room(channel) and not (has_turn and self.is_wanted):
            moved = trio.Event()
            self._waiting[moved] = channel
            try:
                await moved.wait()
            finally:
                del self._waiting[moved]

    def count(self, channel: OutgoingChannel) -> None:
        """The channel has read, or sent, or dropped something."""
        if channel in self._counted:
            self._bytes += channel.fetched_bytes - self._counted[channel]
            self._counted[channel] = channel.fetched_bytes
            self._wake()

    def _wake(self) -> None:
        for moved, channel in self._waiting.items():
            if self.is_wanted or self.has_room(channel):
                moved.set()

    @asynccontextmanager
    async def reading(self, channel: OutgoingChannel) -> AsyncIterator[None]:
        """Count the channel among those that read, while the block lasts."""
        self._readers_count[channel] = self._readers_count.get(channel, 0) + 1
        self._counted.setdefault(channel, 0)
        self.count(channel)
        try:
            yield
        finally:
            self._readers_count[channel] -= 1
            if not self._readers_count[channel]:
                del self._readers_count[channel]
                self._bytes -= self._counted.pop(channel)
            self._wake()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn to read, and have it while the block lasts."""
        if not self._turns.available_tokens:
            self._wanting_count += 1
            try:
                self._wake()
                for scope in self._idle:
                    scope.deadline = min(scope.deadline, trio.current_time() + _IDLE_S)
                await self._turns.acquire()
            finally:
                self._wanting_count -= 1
        else:
            await self._turns.acquire()
        try:
            yield
        finally:
            self._turns.release()

    @asynccontextmanager
    async def patience(self) -> AsyncIterator[trio.CancelScope]:
        """A scope in which to wait for entries: it is cancelled if others want the turn."""
        with trio.CancelScope() as scope:
            if self.is_wanted:
                scope.deadline = trio.current_time() + _IDLE_S
            self._idle.add(scope)
            try:
                yield scope
            finally:
                self._idle.discard(scope)
