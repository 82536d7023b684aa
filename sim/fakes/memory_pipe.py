"""Bytes on their way in one direction of a connection in memory."""

import math
from collections import deque

import attrs
import trio


@attrs.define(eq=False)
class MemoryPipe:
    """What was sent and not yet received, each piece with the time when it arrives."""

    held_bytes: int = 0
    """Sent, and not known by the sender to be received."""
    is_ended: bool = False
    """The sender closed: the end comes after the pieces."""
    is_refused: bool = False
    """The receiver closed: what is still sent breaks the connection."""
    is_reset: bool = False
    """Broken: nothing more is received."""
    is_breaking: bool = False
    """Broken for the sender; the receiver meets the break behind the pieces that are left."""
    arrives_s_last: float = 0.0
    _received_untold_bytes: int = 0
    """Received while the way back was cut: the sender does not know it yet."""
    _pieces: deque[tuple[float, memoryview]] = attrs.field(factory=deque)
    _moved: trio.Event = attrs.field(factory=trio.Event)

    def push(self, piece: bytes, arrives_s: float) -> None:
        """Send a piece; it arrives at `arrives_s`, or with the one before if that is later."""
        self.arrives_s_last = max(arrives_s, self.arrives_s_last)
        self._pieces.append((self.arrives_s_last, memoryview(piece)))
        self.held_bytes += len(piece)
        self.wake()

    def pull_into(self, buffer: memoryview, now_s: float, *, is_sender_told: bool) -> int:
        """Receive what has arrived, as much as the buffer takes."""
        received_bytes = 0
        while self._pieces and self._pieces[0][0] <= now_s and received_bytes < len(buffer):
            arrived_s, piece = self._pieces.popleft()
            count = min(len(piece), len(buffer) - received_bytes)
            buffer[received_bytes : received_bytes + count] = piece[:count]
            received_bytes += count
            if count < len(piece):
                self._pieces.appendleft((arrived_s, piece[count:]))
        self._received_untold_bytes += received_bytes
        if is_sender_told and self._received_untold_bytes:
            self.tell_sender()
        return received_bytes

    def tell_sender(self) -> None:
        """What was received makes room for the sender."""
        self.held_bytes -= self._received_untold_bytes
        self._received_untold_bytes = 0
        self.wake()

    def break_after(self, kept_bytes: int) -> None:
        """Break the direction: of what is under way so many bytes still arrive."""
        self.is_breaking = True
        kept: deque[tuple[float, memoryview]] = deque()
        for arrives_s, piece in self._pieces:
            if kept_bytes <= 0:
                break
            kept.append((arrives_s, piece[:kept_bytes]))
            kept_bytes -= len(piece)
        self._pieces = kept
        self.wake()

    @property
    def is_broken_for_receiver(self) -> bool:
        """Whether a receiver meets the break now."""
        return self.is_reset or (self.is_breaking and not self._pieces)

    @property
    def is_broken_for_sender(self) -> bool:
        """Whether sending fails now."""
        return self.is_reset or self.is_breaking or self.is_refused

    def is_at_end(self, now_s: float) -> bool:
        """Whether all is received and no more will come."""
        return self.is_ended and not self._pieces and self.arrives_s_last <= now_s

    def next_s(self, now_s: float) -> float:
        """When a receiver should look again if nobody wakes it."""
        if self._pieces:
            return self._pieces[0][0]
        if self.is_ended and self.arrives_s_last > now_s:
            return self.arrives_s_last
        return math.inf

    def wake(self) -> None:
        """Have both sides look again."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_moved(self) -> None:
        """Wait for a change made by the other side, or by the network."""
        await self._moved.wait()
