"""The seam below sessions with proxies: connections that carry whole messages.

The real ones are WebSockets (`websocket`). A message is text or bytes.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError


class SocketClosedError(ConnectionFailedError):
    """The connection is over: `close_code` and `reason` as the other side gave them, if any."""

    def __init__(self, close_code: int | None, reason: str) -> None:
        told = f"with code {close_code}" if close_code is not None else "without a code"
        super().__init__(f"the connection was closed {told}{f': {reason}' if reason else ''}")
        self.close_code = close_code
        self.reason = reason


class MessageSocket(Protocol):
    """A connection that carries whole messages, in order, both ways."""

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server chose."""
        ...

    @property
    def origin(self) -> str | None:
        """At a server: the web site whose page opened it; None if no browser did."""
        ...

    async def receive(self) -> str | bytes:
        """The next message. SocketClosedError.

        At a server also the error of a message that came too slowly, or for which there was no
        room: tell it to the client, and close.
        """
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the other side does not read. SocketClosedError."""
        ...

    async def ping(self) -> None:
        """Wait until the other side has answered a ping. SocketClosedError.

        Another task must receive meanwhile.
        """
        ...

    async def close(self, close_code: int, reason: str = "") -> None:
        """Say why, and close; later calls do nothing."""
        ...


class ServedSocket(MessageSocket, Protocol):
    """A connection whose server can tell that a message has come, and leave it unread."""

    async def wait_message(self) -> None:
        """Wait until a message has come: `receive` returns it at once, or raises its error.

        It may also raise that error itself.
        """
        ...


UNREAD_BYTES_MAX = 64 << 20
"""The bound of a server that names none."""


class UnreadBytes:
    """Bytes of messages that a server's connections have received and no session has taken.

    Whole messages count, and the parts that have come of others.
    """

    def __init__(self, max_bytes: int = UNREAD_BYTES_MAX) -> None:
        self.max_bytes = max_bytes
        """The bound. Connections stop reading there, so it is passed by a little for each."""
        self._bytes = 0
        self._waiting: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"UnreadBytes({self._bytes} of {self.max_bytes})"

    @property
    def bytes(self) -> int:
        """Bytes that are unread now."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached."""
        return self._bytes >= self.max_bytes

    def take(self, count: int) -> None:
        """Note bytes that were received."""
        self._bytes += count

    def give_back(self, count: int) -> None:
        """Note bytes that a session has taken, or that were dropped."""
        self._bytes -= count
        assert self._bytes >= 0, "more bytes were given back than taken"
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def call_when_room(self, call: Callable[[], None]) -> None:
        """Call this once there is room again. It may be too late, or for nothing, by then."""
        self._waiting.append(call)


class MessageTransport(Protocol):
    """Opens such connections, and serves them."""

    def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AbstractAsyncContextManager[MessageSocket]:
        """Connect to a server, for the length of the block.

        target: path and query. ConnectionFailedError if there is no connection, or the server
        refuses it.
        """
        ...

    async def serve(
        self,
        stream: ByteStream,
        choose: Callable[[Sequence[str]], str | None],
        handle: Callable[[ServedSocket, str], Awaitable[None]],
        *,
        refusal: str,
        message_bytes_max: int,
        unread: UnreadBytes | None = None,
    ) -> None:
        """Serve one accepted connection until it or `handle` ends.

        choose: picks a subprotocol from those offered; None refuses the connection, with the
        text `refusal`. handle: gets the socket, and the request's path and query. unread: the
        bound that it shares with other connections; None gives it one of its own.
        """
        ...
