"""Bytes in flight in one direction of an in-memory connection."""

import math
from collections import deque

import attrs
import trio

from sim.waits import wait_until


@attrs.define(eq=False)
class MemoryPipe:
    """Pieces sent and not yet received, each with its arrival time."""

    held_bytes: int = 0
    """Bytes sent and not known by the sender to be received."""
    is_ended: bool = False
    """The sender closed: the end comes after the pieces."""
    is_refused: bool = False
    """The receiver closed: further sends break the connection."""
    is_reset: bool = False
    """Broken: the receiver gets nothing more."""
    is_breaking: bool = False
    """Broken for the sender; the receiver sees the break after the remaining pieces."""
    arrives_s_last: float = 0.0
    _received_untold_bytes: int = 0
    """Bytes received while the way back was cut, which the sender does not know yet."""
    _pieces: deque[tuple[float, memoryview]] = attrs.field(factory=deque)
    _moved: trio.Event = attrs.field(factory=trio.Event)

    def push(self, piece: bytes, arrives_s: float) -> None:
        """Send a piece; it arrives at `arrives_s`, but not before the previous piece."""
        self.arrives_s_last = max(arrives_s, self.arrives_s_last)
        self._pieces.append((self.arrives_s_last, memoryview(piece)))
        self.held_bytes += len(piece)
        self.wake()

    def pull_into(self, buffer: memoryview, now_s: float, *, is_sender_told: bool) -> int:
        """Receive arrived bytes, as many as fit into the buffer."""
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
        """Tell the sender about received bytes, which makes room."""
        self.held_bytes -= self._received_untold_bytes
        self._received_untold_bytes = 0
        self.wake()

    def break_after(self, kept_bytes: int) -> None:
        """Break this direction; only `kept_bytes` of the bytes in flight still arrive."""
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
        """Whether a receiver sees the break now."""
        return self.is_reset or (self.is_breaking and not self._pieces)

    @property
    def is_broken_for_sender(self) -> bool:
        """Whether sending fails now."""
        return self.is_reset or self.is_breaking or self.is_refused

    def is_at_end(self, now_s: float) -> bool:
        """Whether everything is received and no more will come."""
        return self.is_ended and not self._pieces and self.arrives_s_last <= now_s

    def next_s(self, now_s: float) -> float:
        """When a receiver should check again unless woken earlier."""
        if self._pieces:
            return self._pieces[0][0]
        if self.is_ended and self.arrives_s_last > now_s:
            return self.arrives_s_last
        return math.inf

    def wake(self) -> None:
        """Wake both sides."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_moved(self, *, until_s: float = math.inf) -> None:
        """Wait for a change by the other side or the network, but no longer than until then."""
        await wait_until(self._moved, until_s)
