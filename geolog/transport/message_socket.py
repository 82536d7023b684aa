"""The seam below sessions with proxies: connections that carry whole messages.

The real ones are WebSockets (`websocket`). A message is text or bytes.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from geolog.transport.unread_bytes import UnreadBytes


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


class OpenedSocket(MessageSocket, Protocol):
    """A connection whose client can tell that bytes come, though no whole message has."""

    @property
    def received_bytes(self) -> int:
        """Bytes that have come, of all messages and parts of them."""
        ...


class ServedSocket(MessageSocket, Protocol):
    """A connection whose server can tell that a message has come, and leave it unread."""

    @property
    def next_arrived_s(self) -> float | None:
        """When the message that `receive` returns at once had come; None if it would wait."""
        ...

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        """Send several messages, which costs less than one by one. SocketClosedError."""
        ...

    async def wait_message(self) -> None:
        """Wait until a message has come: `receive` returns it at once, or raises its error.

        It may also raise that error itself.
        """
        ...


class MessageTransport(Protocol):
    """Opens such connections, and serves them."""

    def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AbstractAsyncContextManager[OpenedSocket]:
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
