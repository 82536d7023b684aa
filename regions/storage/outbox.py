"""The data that waits to be sent on one connection: bounded, in order, mostly sent at once.

The sender's own task sends a message if the socket takes it, which saves a task switch. The
rest waits for `run`. A connection that takes nothing for too long is closed, so that a sleeping
reader cannot hold memory for ever.
"""

from collections import deque

import trio

from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.wire.codec import Buffers

_SEND_BYTES_MAX = 1 << 20
_SEND_BUFFERS_MAX = 512


class Budget:
    """Bytes that wait in all outboxes of a node together, and their bound."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        self._freed = trio.Event()

    def take(self, count_bytes: int) -> None:
        """Count bytes that now wait, even above the bound: producers check before."""
        self.used_bytes += count_bytes

    def give_back(self, count_bytes: int) -> None:
        """Uncount bytes that no longer wait."""
        self.used_bytes -= count_bytes
        if self.used_bytes < self._bytes_max:
            self._freed.set()
            self._freed = trio.Event()

    @property
    def has_room(self) -> bool:
        """Whether the waiting bytes are below the bound."""
        return self.used_bytes < self._bytes_max

    async def wait_room(self) -> None:
        """Wait until the waiting bytes are below the bound."""
        while not self.has_room:
            await self._freed.wait()


class Outbox:
    """The sending half of a connection."""

    def __init__(
        self, stream: ByteStream, budget: Budget, *, waiting_bytes_max: int, stall_s: float
    ) -> None:
        self._stream = stream
        self._budget = budget
        self._waiting_bytes_max = waiting_bytes_max
        self._stall_s = stall_s
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self._is_sending = False
        self._is_broken = False
        self._filled = trio.Event()
        self._taken = trio.Event()

    def put_nowait(self, buffers: Buffers) -> None:
        """Send, now or as soon as the other side takes it."""
        if self._is_broken:
            return
        for buffer in buffers:
            self._waiting.append(buffer)
            self._waiting_bytes += len(buffer)
            self._budget.take(len(buffer))
        if not self._is_sending:
            self._send_nowait()
        if self._waiting:
            self._filled.set()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self._waiting_bytes

    @property
    def has_room(self) -> bool:
        """Whether the waiting bytes are below the bound."""
        return self._waiting_bytes < self._waiting_bytes_max

    async def wait_room(self) -> None:
        """Wait until the waiting bytes are below the bound."""
        await self.wait_below(self._waiting_bytes_max)

    async def wait_empty(self) -> None:
        """Wait until everything was taken."""
        await self.wait_below(1)

    async def wait_below(self, bytes_max: int) -> None:
        """Wait until fewer than `bytes_max` bytes wait."""
        while self._waiting_bytes >= bytes_max:
            await self._taken.wait()

    def close(self) -> None:
        """Drop waiting data; send nothing more."""
        self._is_broken = True
        self._waiting.clear()
        self._on_taken(self._waiting_bytes)

    async def run(self) -> None:
        """Send waiting data. ConnectionFailedError when the other side is gone, or stalls."""
        while True:
            if not self._waiting:
                self._filled = trio.Event()
                await self._filled.wait()
            self._is_sending = True
            piece = self._next_piece()
            piece_bytes = sum(len(buffer) for buffer in piece)
            with trio.move_on_after(self._stall_s) as stalled:
                await self._stream.send(piece)
            if stalled.cancelled_caught:
                raise ConnectionFailedError(
                    f"{self._stream.peer} took no data for {self._stall_s} seconds"
                )
            self._is_sending = False
            self._on_taken(piece_bytes)

    def _next_piece(self) -> Buffers:
        piece: Buffers = []
        piece_bytes = 0
        while (
            self._waiting and piece_bytes < _SEND_BYTES_MAX and len(piece) < _SEND_BUFFERS_MAX
        ):
            buffer = self._waiting.popleft()
            piece.append(buffer)
            piece_bytes += len(buffer)
        return piece

    def _send_nowait(self) -> None:
        try:
            sent_bytes = self._stream.send_nowait(self._waiting)
        except ConnectionFailedError:
            self.close()
            self._stream.close()  # This also wakes the receiving task.
            return
        left_bytes = sent_bytes
        while left_bytes:
            buffer = self._waiting.popleft()
            if len(buffer) > left_bytes:
                self._waiting.appendleft(memoryview(buffer)[left_bytes:])
                break
            left_bytes -= len(buffer)
        self._on_taken(sent_bytes)

    def _on_taken(self, count_bytes: int) -> None:
        self._waiting_bytes -= count_bytes
        self._budget.give_back(count_bytes)
        if count_bytes:
            self._taken.set()
            self._taken = trio.Event()
