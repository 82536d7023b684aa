"""The seam of whole messages over connections of any transport, without WebSockets.

A WebSocket masks what a client sends with random bytes, so no seed could replay it. Here each
message is a header and its bytes. Their connection may be slow, cut or broken, like any other.

The first message of a client names its target and the subprotocols that it offers; the first of
a server the one it chose, or that it refuses.
"""

import json
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from geolog.transport.message_socket import ServedSocket, SocketClosedError
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport
from geolog.transport.unread_bytes import UnreadBytes

_HEADER = struct.Struct("<BI")
_BYTES, _TEXT, _CLOSE, _PING, _PONG = range(5)
_RECEIVE_BYTES = 64 << 10
_HANDSHAKE_S = 10.0
_CLOSE_TOO_LARGE = 1009


@attrs.define(eq=False)
class _Ping:
    answered: trio.Event = attrs.field(factory=trio.Event)
    error: SocketClosedError | None = None


class MemoryMessageSocket:
    """A `ServedSocket` over a connection of the transport seam."""

    def __init__(self, stream: ByteStream, message_bytes_max: int) -> None:
        self._stream = stream
        self._message_bytes_max = message_bytes_max
        self._received = bytearray()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._turn = trio.Lock()
        self._is_closed = False
        self._pings: deque[_Ping] = deque()
        self._next: str | bytes | None = None
        self._next_arrived_s = 0.0
        self.subprotocol: str | None = None
        self.received_bytes = 0
        """Bytes that have come, of all messages and parts of them."""

    def __repr__(self) -> str:
        return f"MemoryMessageSocket({self._stream.peer})"

    @property
    def origin(self) -> str | None:
        """None: it is no browser that opens it."""
        return None

    async def receive(self) -> str | bytes:
        """The next message. SocketClosedError."""
        await self.wait_message()
        assert self._next is not None
        message, self._next = self._next, None
        return message

    @property
    def next_arrived_s(self) -> float | None:
        """When the message that was waited for had come."""
        return None if self._next is None else self._next_arrived_s

    async def wait_message(self) -> None:
        """Wait until a message has come. SocketClosedError."""
        if self._next is None:
            self._next = await self._next_message()
            self._next_arrived_s = trio.current_time()

    async def _next_message(self) -> str | bytes:
        try:
            while True:
                kind, body = await self._receive()
                if kind == _PING:
                    await self._send(_PONG, b"")
                elif kind == _PONG and self._pings:
                    self._pings.popleft().answered.set()
                elif kind in (_BYTES, _TEXT):
                    return body.decode() if kind == _TEXT else body
        except SocketClosedError as error:
            while self._pings:
                ping = self._pings.popleft()
                ping.error = error
                ping.answered.set()
            raise

    async def _receive(self) -> tuple[int, bytes]:
        await self._wait_bytes(_HEADER.size)
        kind, length = _HEADER.unpack_from(self._received)
        if length > self._message_bytes_max:
            await self.close(_CLOSE_TOO_LARGE, "message too large")
            raise SocketClosedError(_CLOSE_TOO_LARGE, "message too large")
        end = _HEADER.size + length
        await self._wait_bytes(end)
        body = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        if kind == _CLOSE:
            self._close()
            close_code, reason = json.loads(body)
            raise SocketClosedError(close_code, reason)
        return kind, body

    async def _wait_bytes(self, count: int) -> None:
        while len(self._received) < count:
            try:
                received_bytes = await self._stream.receive_into(self._buffer)
            except ConnectionFailedError as error:
                raise SocketClosedError(None, str(error)) from error
            if not received_bytes:
                raise SocketClosedError(None, "")
            self.received_bytes += received_bytes
            self._received += self._buffer[:received_bytes]

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the other side does not read. SocketClosedError."""
        if isinstance(message, str):
            await self._send(_TEXT, message.encode())
        else:
            await self._send(_BYTES, message)

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        """Send several messages. SocketClosedError."""
        for message in messages:
            await self.send(message)

    async def _send(self, kind: int, body: bytes) -> None:
        async with self._turn:
            try:
                await self._stream.send([_HEADER.pack(kind, len(body)), body])
            except ConnectionFailedError as error:
                raise SocketClosedError(None, str(error)) from error

    async def ping(self) -> None:
        """Wait until the other side has answered a ping. SocketClosedError."""
        ping = _Ping()
        self._pings.append(ping)
        await self._send(_PING, b"")
        await ping.answered.wait()
        if ping.error is not None:
            raise ping.error

    async def close(self, close_code: int, reason: str = "") -> None:
        """Say why, and close; later calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with suppress(SocketClosedError), trio.move_on_after(_HANDSHAKE_S):
                await self._send(_CLOSE, json.dumps([close_code, reason]).encode())
        finally:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._stream.close()


@attrs.frozen
class MemoryMessages:
    """A `MessageTransport` over a transport."""

    transport: Transport

    @asynccontextmanager
    async def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AsyncIterator[MemoryMessageSocket]:
        """Connect to a server, for the length of the block."""
        stream = await self.transport.connect(address)
        try:
            socket = MemoryMessageSocket(stream, message_bytes_max)
            with trio.move_on_after(_HANDSHAKE_S) as handshake:
                await socket.send(json.dumps({"target": target, "offered": list(subprotocols)}))
                accepted = json.loads(await socket.receive())
            if handshake.cancelled_caught:
                raise ConnectionFailedError(f"{address} did not open a session")
            if "refusal" in accepted:
                raise ConnectionFailedError(f"{address} refused: {accepted['refusal']}")
            socket.subprotocol = accepted["chosen"]
            yield socket
        finally:
            stream.close()

    async def serve(
        self,
        stream: ByteStream,
        choose: Callable[[Sequence[str]], str | None],
        handle: Callable[[ServedSocket, str], Awaitable[None]],
        *,
        refusal: str,
        message_bytes_max: int,
        unread: UnreadBytes | None = None,  # noqa: ARG002 - messages here arrive whole.
    ) -> None:
        """Serve one accepted connection until it or `handle` ends."""
        socket = MemoryMessageSocket(stream, message_bytes_max)
        target: str | None = None
        try:
            with suppress(SocketClosedError), trio.move_on_after(_HANDSHAKE_S):
                asked = json.loads(await socket.receive())
                socket.subprotocol = choose(asked["offered"])
                if socket.subprotocol is None:
                    await socket.send(json.dumps({"refusal": refusal}))
                    return
                await socket.send(json.dumps({"chosen": socket.subprotocol}))
                target = asked["target"]
            if target is not None:
                await handle(socket, target)
        finally:
            stream.close()
