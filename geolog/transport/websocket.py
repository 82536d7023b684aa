"""WebSockets behind the seam `message_socket`, over any connection of the transport seam.

A client's connection reads in a task of its own, which waits while `_QUEUED_MAX` messages are
unread, so that TCP holds the other side back. A message above the limit closes the connection
with code 1009. The server's side is `served_websocket`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast

import attrs
import h11
import trio
import trio_websocket

from geolog.background import open_background
from geolog.transport.message_socket import ServedSocket, SocketClosedError
from geolog.transport.request_head import read_head, spread_s
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport
from geolog.transport.served_websocket import ServedWebSocket
from geolog.transport.trio_stream import RECEIVE_BYTES_MAX, TrioStream
from geolog.transport.unread_bytes import UnreadBytes

HANDSHAKE_S = 10.0
"""Time limit of a handshake, and of a farewell; a server waits a little longer for some."""

CLOSE_NORMAL = 1000

_QUEUED_MAX = 4


class WebSocket:
    """A `MessageSocket` that this process has opened."""

    def __init__(
        self, connection: trio_websocket.WebSocketConnection, stream: TrioStream
    ) -> None:
        self._connection = connection
        self._stream = stream

    def __repr__(self) -> str:
        return f"WebSocket({self._connection})"

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server chose."""
        return self._connection.subprotocol

    @property
    def origin(self) -> str | None:
        """None: no browser opened it."""
        return None

    @property
    def received_bytes(self) -> int:
        """Bytes that have come, of all messages and parts of them."""
        return self._stream.received_bytes

    async def receive(self) -> str | bytes:
        """The next message. SocketClosedError."""
        try:
            return await self._connection.get_message()
        except trio_websocket.ConnectionClosed as error:
            raise _closed(error) from error

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the other side does not read. SocketClosedError."""
        try:
            await self._connection.send_message(message)
        except trio_websocket.ConnectionClosed as error:
            raise _closed(error) from error

    async def ping(self) -> None:
        """Wait until the other side has answered a ping. SocketClosedError."""
        try:
            await self._connection.ping()
        except trio_websocket.ConnectionClosed as error:
            raise _closed(error) from error

    async def close(self, close_code: int, reason: str = "") -> None:
        """Say why, and close; later calls do nothing."""
        with trio.move_on_after(HANDSHAKE_S):
            await self._connection.aclose(
                close_code, reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
            )


_REASON_BYTES_MAX = 123
"""A control frame has at most 125 bytes, two of them for the code."""


def _closed(error: trio_websocket.ConnectionClosed) -> SocketClosedError:
    reason = error.reason
    return (
        SocketClosedError(None, "")
        if reason is None
        else SocketClosedError(reason.code, reason.reason or "")
    )


@asynccontextmanager
async def open_websocket(
    transport: Transport,
    address: Address,
    target: str,
    *,
    subprotocols: Sequence[str],
    message_bytes_max: int,
) -> AsyncIterator[WebSocket]:
    """Connect to a server, for the length of the block.

    target: path and query. ConnectionFailedError if there is no connection, or the server
    refuses the handshake.
    """
    stream = await transport.connect(address)
    try:
        async with open_background() as nursery:
            adapter = TrioStream(stream)
            connection = await _connected(
                nursery, adapter, address, target, subprotocols, message_bytes_max
            )
            try:
                yield WebSocket(connection, adapter)
            finally:
                # Without a shield: when all is cancelled, so is the task that would hear the
                # other side's farewell.
                with trio.move_on_after(HANDSHAKE_S):
                    await connection.aclose()
    except trio_websocket.ConnectionRejected as error:  # By its reader's task.
        body = (error.body or b"").decode(errors="replace").strip()
        raise ConnectionFailedError(
            f"{address} refused a WebSocket with status {error.status_code}: {body}"
        ) from error
    except h11.ProtocolError as error:  # Likewise.
        raise ConnectionFailedError(f"{address} does not speak HTTP: {error}") from error
    finally:
        stream.close()


async def _connected(
    nursery: trio.Nursery,
    adapter: TrioStream,
    address: Address,
    target: str,
    subprotocols: Sequence[str],
    message_bytes_max: int,
) -> trio_websocket.WebSocketConnection:
    try:
        with trio.fail_after(HANDSHAKE_S):
            return await trio_websocket.wrap_client_stream(
                nursery,
                # The library takes any stream, whatever its annotation says.
                cast("trio.SocketStream", adapter),
                str(address),
                target,
                subprotocols=subprotocols,
                message_queue_size=_QUEUED_MAX,
                max_message_size=message_bytes_max,
                receive_buffer_size=RECEIVE_BYTES_MAX,
            )
    except (trio_websocket.ConnectionClosed, trio.TooSlowError) as error:
        told = f"{address} did not open a WebSocket: {error!r}"
        raise (adapter.failure or ConnectionFailedError(told)) from error


async def serve_websocket(
    stream: ByteStream,
    choose: Callable[[Sequence[str]], str | None],
    handle: Callable[[ServedSocket, str], Awaitable[None]],
    *,
    refusal: str,
    message_bytes_max: int,
    unread: UnreadBytes | None = None,
) -> None:
    """Serve one connection until it or `handle` ends.

    choose: picks a subprotocol from those offered; None refuses the handshake with 400 and the
    text `refusal`. handle: gets the socket, and the request's path and query. unread: the bound
    on unread bytes that it shares with other connections; None gives it one of its own.
    """
    head = b""
    limit_s = spread_s(HANDSHAKE_S, stream.peer)
    with suppress(ConnectionFailedError), trio.move_on_after(limit_s) as handshake:
        head = await read_head(stream)
    if not head:
        return
    socket = ServedWebSocket(
        stream, head, message_bytes_max=message_bytes_max, unread=unread or UnreadBytes()
    )
    target: str | None = None
    try:
        with suppress(ConnectionFailedError), trio.CancelScope(deadline=handshake.deadline):
            target = await socket.accept(choose, refusal)
        if target is not None:
            await _serve_session(socket, target, handle)
    finally:
        socket.forget()


async def _serve_session(
    socket: ServedWebSocket,
    target: str,
    handle: Callable[[ServedSocket, str], Awaitable[None]],
) -> None:
    async with open_background() as nursery:
        nursery.start_soon(socket.run)
        try:
            await handle(socket, target)
        finally:
            await socket.close(CLOSE_NORMAL)


@attrs.frozen
class WebSockets:
    """`MessageTransport` over connections of a transport."""

    transport: Transport

    def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AbstractAsyncContextManager[WebSocket]:
        """Connect to a server, for the length of the block."""
        return open_websocket(
            self.transport,
            address,
            target,
            subprotocols=subprotocols,
            message_bytes_max=message_bytes_max,
        )

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
        """Serve one accepted connection until it or `handle` ends."""
        await serve_websocket(
            stream,
            choose,
            handle,
            refusal=refusal,
            message_bytes_max=message_bytes_max,
            unread=unread,
        )
