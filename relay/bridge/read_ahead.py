"""Bounds what a bridge reads from logs ahead of what it sends, over all of its partitions.

A target that was away is behind in all partitions at once, and each of them is read from the
log by a task of its own. A few of them read at a time, in turns; one that has its share waits
until that was sent, and gives its turn to others. So memory does not grow with the number of
partitions.

A turn is over after a while if others want it, but no read is given up for that: one that is
under way goes on to its answer without a turn. So logs that answer slowly, and those that are
at their ends, are read all the same, and hold up no others for long.

Rules: PROTOCOL B8.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from relay.protocol.outgoing import OutgoingChannel

AHEAD_BYTES_MAX = 4 << 20
"""Bytes of one partition that are read ahead, if there are few."""

READERS_MAX = 8
"""Partitions that have a turn at a time."""

TURN_S = 1.0
"""How long a turn lasts, at least, if others want it."""


@attrs.define(eq=False)
class ReadTurn:
    """The turn of one channel to read; `LogsReadAhead.turn` gives it."""

    channel: OutgoingChannel
    begun: trio.Event = attrs.field(factory=trio.Event)


class LogsReadAhead:
    """Entries that the channels of one bridge have read and not sent."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._counted: dict[OutgoingChannel, int] = {}
        """Bytes of each channel that reads, as counted in all."""
        self._readers_count: dict[OutgoingChannel, int] = {}
        """Tasks that read for each: one that was told to stop may end after the next began."""
        self._turns: dict[ReadTurn, float] = {}
        """Those under way, the oldest first, and since when."""
        self._queue: deque[ReadTurn] = deque()
        """Those that are wanted."""
        self._moved: dict[OutgoingChannel, trio.Event] = {}

    def __repr__(self) -> str:
        return (
            f"LogsReadAhead({self.bytes} of {self._bytes_max}, {len(self._counted)} channels,"
            f" {len(self._queue)} want a turn)"
        )

    @property
    def bytes(self) -> int:
        """Bytes that were read and not sent."""
        return self._bytes

    def count(self, channel: OutgoingChannel) -> None:
        """The channel has read, or sent, or dropped something."""
        if channel in self._counted:
            self._bytes += channel.fetched_bytes - self._counted[channel]
            self._counted[channel] = channel.fetched_bytes
            if self._has_share(channel):
                self._wake(channel)
            self._give_out()

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
            for one in list(self._moved):  # The share of each has grown.
                self._wake(one)
            self._give_out()

    def _has_share(self, channel: OutgoingChannel) -> bool:
        """Whether the channel has less than its share."""
        share_bytes = self._bytes_max // max(1, len(self._counted))
        return channel.fetched_bytes <= min(AHEAD_BYTES_MAX, share_bytes)

    async def wait_share(self, channel: OutgoingChannel) -> None:
        """Wait until the channel has less than its share."""
        while not self._has_share(channel):
            await self._wait_moved(channel)

    async def wait_sent(self, channel: OutgoingChannel) -> None:
        """Wait until all that the channel has read was sent, or dropped."""
        while channel.fetched_bytes:
            await self._wait_moved(channel)

    async def _wait_moved(self, channel: OutgoingChannel) -> None:
        await self._moved.setdefault(channel, trio.Event()).wait()

    def _wake(self, channel: OutgoingChannel) -> None:
        moved = self._moved.pop(channel, None)
        if moved is not None:
            moved.set()

    # Turns.

    @asynccontextmanager
    async def turn(self, channel: OutgoingChannel) -> AsyncIterator[ReadTurn]:
        """Wait for a turn, and for room in all, and have the turn while the block lasts."""
        turn = ReadTurn(channel)
        self._queue.append(turn)
        self._give_out()
        try:
            await turn.begun.wait()
            yield turn
        finally:
            if not turn.begun.is_set():
                self._queue.remove(turn)
            self._turns.pop(turn, None)
            self._give_out()

    def look(self) -> None:
        """Let turns be over that have lasted long; the owner calls it about every second."""
        self._give_out()

    def goes_on(self, turn: ReadTurn) -> bool:
        """Whether more may be read in this turn now."""
        is_full = self._bytes > self._bytes_max
        return turn in self._turns and not is_full and self._has_share(turn.channel)

    async def wait_goes_on(self, turn: ReadTurn) -> bool:
        """Wait while more may not be read now, and nobody else wants the turn; `goes_on`."""
        while not self.goes_on(turn) and turn in self._turns and not self._queue:
            await self._wait_moved(turn.channel)
        return self.goes_on(turn)

    def _give_out(self) -> None:
        """Give turns to those that have waited longest, if there is room."""
        now_s = trio.current_time()
        while self._queue and self._bytes <= self._bytes_max:
            if len(self._turns) >= READERS_MAX:
                oldest, since_s = next(iter(self._turns.items()))
                if now_s - since_s < TURN_S:
                    break
                del self._turns[oldest]
                self._wake(oldest.channel)
            turn = self._queue.popleft()
            self._turns[turn] = now_s
            turn.begun.set()
        for turn in self._turns:
            if self._queue or self.goes_on(turn):
                self._wake(turn.channel)
