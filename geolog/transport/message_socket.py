"""The seam below sessions with proxies: a connection that carries whole messages.

The real one is a WebSocket (`websocket`). A message is text or bytes.
"""

from typing import Protocol

from geolog.transport.seam import ConnectionFailedError


class SocketClosedError(ConnectionFailedError):
    """The connection is over: `close_code` and `reason` as the other side gave them, if any."""

    def __init__(self, close_code: int | None, reason: str) -> None:
        told = f"with code {close_code}" if close_code is not None else "without a code"
        super().__init__(f"the connection was closed {told}{f': {reason}' if reason else ''}")
        self.close_code = close_code
        self.reason = reason


class MessageSocket(Protocol):
    """A connection that carries whole messages, in order, both ways."""

    async def receive(self) -> str | bytes:
        """The next message. SocketClosedError."""
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the other side does not read. SocketClosedError."""
        ...

    async def ping(self) -> None:
        """Wait until the other side has answered a ping. SocketClosedError."""
        ...

    async def close(self, close_code: int, reason: str = "") -> None:
        """Say why, and close; later calls do nothing."""
        ...
