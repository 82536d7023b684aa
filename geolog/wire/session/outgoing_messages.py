"""Messages of a session that wait to be sent: those that wait together go as one.

A WebSocket message costs both sides much the same, however little it holds. Nothing waits for
more: what came while the last one was being sent shares the next.
"""

from collections import deque

JOINED_BYTES_MAX = 256 << 10
"""Bytes of messages that go as one WebSocket message; a longer message goes alone."""


class OutgoingMessages:
    """A queue of encoded messages, taken from it as WebSocket messages.

    Invariant: what is taken, joined, is what was pushed, joined.
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, int]] = deque()
        self._size_bytes = 0

    def __repr__(self) -> str:
        return f"OutgoingMessages({len(self._messages)})"

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages that wait."""
        return self._size_bytes

    def push(self, message: bytes, *, counted_bytes: int = 0) -> None:
        """Add a message, with the bytes in flight that it counts until it is taken."""
        self._messages.append((message, counted_bytes))
        self._size_bytes += len(message)

    def take(self) -> tuple[bytes, int]:
        """The next WebSocket message, and the bytes that it counts; there must be one."""
        message, counted_bytes = self._messages.popleft()
        self._size_bytes -= len(message)
        if not self._messages:
            return message, counted_bytes
        taken, size_bytes = [message], len(message)
        while self._messages:
            message, more_bytes = self._messages[0]
            size_bytes += len(message)
            if size_bytes > JOINED_BYTES_MAX:
                break
            self._messages.popleft()
            self._size_bytes -= len(message)
            taken.append(message)
            counted_bytes += more_bytes
        return b"".join(taken), counted_bytes
