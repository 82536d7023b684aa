"""A WebSocket as its server has it: wsproto's protocol over a connection of the transport seam.

Theory of operation. One task reads ahead of the session, so that pings are answered and the end
of the connection is noticed while the session is busy. It stops while `_QUEUED_BYTES_MAX` wait,
and TCP holds the client back. What waits, and the part of a message that has come so far, count
as unread bytes of the whole server, see `unread_bytes`: as much as they take in memory, so that
many tiny messages are no way around the bound.

A message has `MESSAGE_S` to arrive from its first byte, and must go on meanwhile. A message
above the limit closes the connection with code 1009.

Frames that carry next to nothing (pings, pongs that nobody has asked for, empty messages, tiny
parts) cost the server as much as others. A client that sends more of them than anybody needs is
closed with code 1008. After each few frames, whatever they are, other tasks have a turn.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

import trio
import wsproto
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from geolog.transport.client_address import client_of
from geolog.transport.message_socket import SocketClosedError
from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.transport.trio_stream import ReceiveBuffer
from geolog.transport.unread_bytes import UnreadBytes
from topology.errors import GeologError, OverCapacityError

MESSAGE_S = 60.0
"""Time limit of a message, from its first byte to its last."""

GRACE_S = 30.0
PACE_BYTES = 4096
"""Within its time a message may be so late behind a pace of so many bytes a second: a link that
stands still loses no session, as TCP may send again only after twice the time, and a slow one
sends what it can. Byte after byte is ended soon."""

FAREWELL_S = 10.0
"""How long the other side may take to answer a farewell."""

_QUEUED_BYTES_MAX = 256 << 10
"""Bytes of whole messages that wait for the session; a larger one waits alone."""

_TURN_SENDS = 64
"""Messages that are sent before other tasks have a turn."""
_TURN_FRAMES = 32
_TURN_BYTES = 64 << 10
"""Likewise frames that have come, and bytes that were received at once."""

_SMALL_BYTES = 4 << 10
"""Bytes that are received at once while there is no room for more."""

TINY_PER_S = 100.0
TINY_AT_ONCE = 200
"""Frames with next to nothing that a client may send: so many, then so many a second."""
_TINY_BYTES = 64
"""A piece of a message below this is one of them."""
_MESSAGE_BYTES = 80
"""Memory that a message takes while it waits, besides its own object."""

_TOO_MANY = 1008
_TOO_LARGE = 1009
_ABNORMAL = 1006
"""The code of a connection that ended without a farewell."""
_REASON_BYTES_MAX = 123
"""A control frame has at most 125 bytes, two of them for the code."""


class SlowMessageError(GeologError):
    """A message did not arrive in its time: send it again, or in smaller messages."""

    code: ClassVar[int] = 408
    retriable: ClassVar[bool] = True


class ServedWebSocket:
    """A `ServedSocket`: a client has opened it. `run` reads from it."""

    def __init__(
        self, stream: ByteStream, head: bytes, *, message_bytes_max: int, unread: UnreadBytes
    ) -> None:
        """Serve the client whose request's head has come."""
        self._stream = stream
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self._head = head
        self._buffer = ReceiveBuffer()
        self._message_bytes_max = message_bytes_max
        self._unread = unread.open(client_of(stream.peer), self._give_way, self._tell_change)
        self._queue: deque[tuple[str | bytes, int, float]] = deque()
        self._queued_bytes = 0
        self._parts: list[str | bytes] = []
        self._parts_bytes = 0
        """Bytes that have come of the message that has begun, as they were sent."""
        self._began_s = math.inf
        """When it began; it has not if this is infinite."""
        self._tiny_count = 0.0
        self._tiny_s = 0.0
        self._is_held = False
        """Whether nothing is read because of what waits."""
        self._failure: GeologError | None = None
        """Why nothing more will be received, once the queue is empty."""
        self._is_over = False
        """Whether nothing more can be sent."""
        self._is_closing = False
        self._changed = trio.Event()
        self._sending = trio.Lock()
        self._sends_count = 0
        self._pings_count = 0
        self._pongs: dict[bytes, trio.Event] = {}
        self.subprotocol: str | None = None
        """The subprotocol that the server chose."""
        self.origin: str | None = None
        """The web site whose page opened it; None if no browser did."""

    def __repr__(self) -> str:
        return f"ServedWebSocket({self._stream.peer})"

    # The handshake.

    async def accept(
        self, choose: Callable[[Sequence[str]], str | None], refusal: str
    ) -> str | None:
        """Take the handshake; the request's path and query, None if it was refused."""
        try:
            request = await self._request()
        except RemoteProtocolError as error:
            hint = error.event_hint
            if isinstance(hint, RejectConnection):
                await self._send(hint)
            return None
        if request is None:
            return None
        offered = request.subprotocols
        chosen = choose(offered)
        if chosen is None:
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            body = refusal.encode()
            headers.append((b"content-length", b"%d" % len(body)))
            await self._send(RejectConnection(status_code=400, headers=headers, has_body=True))
            await self._send(RejectData(data=body))
            return None
        self.subprotocol = chosen if offered else None
        origins = (value for name, value in request.extra_headers if name == b"origin")
        origin = next(origins, None)
        self.origin = None if origin is None else origin.decode("latin-1")
        await self._send(AcceptConnection(subprotocol=self.subprotocol))
        return request.target

    async def _request(self) -> Request | None:
        data, self._head = self._head, b""
        while data:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if isinstance(event, Request):
                    return event
            data = await self._buffer.receive(self._stream)
        return None

    # Messages.

    async def receive(self) -> str | bytes:
        """The next message. SocketClosedError, SlowMessageError, OverCapacityError."""
        await self.wait_message()
        if not self._queue:
            if isinstance(self._failure, SocketClosedError):
                raise self._closed_error()
            assert self._failure is not None
            raise self._failure
        message, size_bytes, _ = self._queue.popleft()
        self._queued_bytes -= size_bytes
        self._unread.give_back(size_bytes)
        if self._is_held:
            self._tell_change()
        return message

    @property
    def next_arrived_s(self) -> float | None:
        """When the first message that waits had come."""
        return self._queue[0][-1] if self._queue else None

    async def wait_message(self) -> None:
        """Wait until a message has come, or none will."""
        while not self._queue and self._failure is None:
            await self._changed.wait()

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the other side does not read. SocketClosedError."""
        await self.send_all((message,))

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        """Send several messages at once. SocketClosedError."""
        await self._send(*map(_event_of, messages))
        self._sends_count += len(messages)
        if self._sends_count >= _TURN_SENDS:
            self._sends_count = 0
            await trio.lowlevel.checkpoint()

    async def ping(self) -> None:
        """Wait until the other side has answered a ping. SocketClosedError."""
        self._pings_count += 1
        payload = b"%d" % self._pings_count
        answered = self._pongs[payload] = trio.Event()
        try:
            await self._send(Ping(payload=payload))
            await answered.wait()
        finally:
            del self._pongs[payload]
        if self._is_over:
            raise self._closed_error()

    async def close(self, close_code: int, reason: str = "") -> None:
        """Say why, and close; later calls do nothing. Waits for the other side's farewell."""
        if self._is_over or self._is_closing:
            return
        self._is_closing = True
        told = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        try:
            with trio.move_on_after(FAREWELL_S):
                with suppress(SocketClosedError):
                    await self._send(CloseConnection(code=close_code, reason=told))
                self._tell_change()  # The reader waits for nothing else now.
                while not self._is_over:
                    await self._changed.wait()
        finally:
            self._end(SocketClosedError(close_code, reason))

    async def _send(self, *events: Event) -> None:
        # Without a checkpoint if possible: a farewell must go out when all is cancelled.
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            if self._is_over:
                raise self._closed_error()
            try:
                data = b"".join(map(self._protocol.send, events))
            except LocalProtocolError as error:  # A farewell was sent or received.
                raise self._closed_error() from error
            await self._send_data(data)
        finally:
            self._sending.release()

    async def _send_data(self, data: bytes) -> None:
        try:
            sent = self._stream.send_nowait([data])
            if sent == len(data):
                return
            is_whole = False
            try:
                await self._stream.send([memoryview(data)[sent:]])
                is_whole = True
            finally:
                if not is_whole:  # A part of a frame cannot be followed by another one.
                    self._end(SocketClosedError(_ABNORMAL, ""))
        except ConnectionFailedError as error:
            self._end(SocketClosedError(_ABNORMAL, ""))
            raise self._closed_error() from error

    def _closed_error(self) -> SocketClosedError:
        if isinstance(self._failure, SocketClosedError):
            return SocketClosedError(self._failure.close_code, self._failure.reason)
        return SocketClosedError(_ABNORMAL, "")

    # Reading.

    async def run(self) -> None:
        """Read until the connection ends."""
        try:
            while not self._is_over:
                await self._wait_room()
                data = await self._next_bytes()
                if not data:
                    self._end(SocketClosedError(_ABNORMAL, ""))
                    return
                size_bytes = len(data)
                self._protocol.receive_data(data)
                del data  # The protocol has a copy.
                await self._take_frames(size_bytes)
                if size_bytes >= _TURN_BYTES:
                    await trio.lowlevel.checkpoint()
        except ConnectionFailedError:
            pass
        finally:
            self._drop_parts()
            self._end(SocketClosedError(_ABNORMAL, ""))

    def forget(self) -> None:
        """Drop what no session will take. Nothing is read any more."""
        self._queue.clear()
        self._unread.close()

    async def _wait_room(self) -> None:
        # After a failure, or a farewell of ours, all is read and dropped.
        if not self._lacks_room():
            return
        began_s, self._is_held = trio.current_time(), True
        try:
            while self._lacks_room():
                if self._unread.is_full:
                    self._unread.expect_room()
                await self._changed.wait()
        finally:
            self._is_held = False
        held_s = trio.current_time() - began_s  # Is not the client's fault.
        self._began_s += held_s

    def _lacks_room(self) -> bool:
        return (
            self._failure is None
            and not self._is_closing
            and (
                self._queued_bytes >= _QUEUED_BYTES_MAX
                or (bool(self._queue) and self._unread.is_full)
            )
        )

    async def _next_bytes(self) -> bytes:
        """The next bytes; none at the end."""
        bytes_max = _SMALL_BYTES if self._unread.is_full else None
        while True:
            due_s = self._began_s + patience_s(self._parts_bytes, MESSAGE_S)
            with trio.CancelScope(deadline=due_s):
                return await self._buffer.receive(self._stream, bytes_max)
            told_s = trio.current_time() - self._began_s
            self._fail(
                SlowMessageError(
                    f"a message has {self._parts_bytes} bytes after {told_s:.0f} s, and no end"
                )
            )

    async def _take_frames(self, size_bytes: int) -> None:
        """Take all frames that have come, with the last bytes, so many."""
        held_bytes = 0
        try:
            for number, event in enumerate(self._protocol.events(), 1):
                await self._take(event)
                if number % _TURN_FRAMES == 0:
                    await trio.lowlevel.checkpoint()
                if self._lacks_room():
                    if not held_bytes:  # The protocol keeps what is left of them.
                        held_bytes = size_bytes
                        self._unread.take(held_bytes)
                    await self._wait_room()
                if self._is_over:
                    break
        except RemoteProtocolError as error:
            hint = error.event_hint
            code = int(hint.code) if isinstance(hint, CloseConnection) else 1002
            await self._say_goodbye(code, str(error))
        finally:
            self._unread.give_back(held_bytes)

    async def _take(self, event: Event) -> None:
        match event:
            case TextMessage() | BytesMessage():
                is_last = event.message_finished
                if event.frame_finished and self._is_tiny(len(event.data), is_last=is_last):
                    await self._note_tiny()
                if self._failure is None and not self._is_closing:
                    await self._take_part(event.data, is_last=is_last)
            case Ping():
                await self._note_tiny()
                await self._answer(event.response())
            case Pong():
                pong = self._pongs.get(bytes(event.payload))
                if pong is None:
                    await self._note_tiny()
                else:
                    pong.set()
            case CloseConnection():
                if not self._is_closing:
                    await self._answer(event.response())
                self._end(SocketClosedError(int(event.code), event.reason or ""))
            case _:
                raise AssertionError(f"not an event of an open connection: {event!r}")

    def _is_tiny(self, size: int, *, is_last: bool) -> bool:
        if is_last:
            return not size and not self._parts
        return size < _TINY_BYTES

    async def _note_tiny(self) -> None:
        """Note a frame with next to nothing; end the connection if they are too many."""
        now_s = trio.current_time()
        left = self._tiny_count - (now_s - self._tiny_s) * TINY_PER_S
        self._tiny_count, self._tiny_s = max(0.0, left) + 1, now_s
        if self._tiny_count > TINY_AT_ONCE and not self._is_over:
            self._drop_parts()
            told = f"more than {TINY_PER_S:g} pings, pongs and empty messages a second"
            await self._say_goodbye(_TOO_MANY, told)

    async def _take_part(self, part: str | bytes | bytearray, *, is_last: bool) -> None:
        self._parts_bytes += _sent_bytes(part)
        if self._parts_bytes > self._message_bytes_max:
            self._drop_parts()
            told = f"the message has more than {self._message_bytes_max} bytes"
            await self._say_goodbye(_TOO_LARGE, told)
            return
        piece = bytes(part) if isinstance(part, bytearray) else part
        if is_last:
            self._end_message(piece)
            return
        if self._began_s == math.inf:
            self._began_s = trio.current_time()
        if piece:
            self._parts.append(piece)
            self._unread.take_part(_held_bytes(piece))

    def _end_message(self, last: str | bytes) -> None:
        message = _joined([*self._parts, last]) if self._parts else last
        self._drop_parts()
        size_bytes = _held_bytes(message)
        self._unread.take(size_bytes)
        self._queue.append((message, size_bytes, trio.current_time()))
        self._queued_bytes += size_bytes
        if len(self._queue) == 1:
            self._tell_change()

    def _drop_parts(self) -> None:
        self._parts, self._parts_bytes, self._began_s = [], 0, math.inf
        self._unread.give_back_parts()

    def _give_way(self, why: str) -> None:
        """Drop the message that has begun: there is no room for it."""
        self._fail(OverCapacityError(why))

    async def _answer(self, event: Event) -> None:
        try:
            await self._send(event)
        except SocketClosedError:
            self._end(SocketClosedError(_ABNORMAL, ""))

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """End the connection because of what the client has sent."""
        if not self._is_closing:
            await self._answer(CloseConnection(code=code, reason=reason[:_REASON_BYTES_MAX]))
        self._end(SocketClosedError(code, reason))

    def _fail(self, error: GeologError) -> None:
        """Receive nothing more. The session may still tell the client why, and close."""
        self._drop_parts()
        self._failure = self._failure or error
        self._tell_change()

    def _end(self, error: SocketClosedError) -> None:
        if self._is_over:
            return
        self._failure = self._failure or error
        self._is_over = True
        for pong in self._pongs.values():
            pong.set()
        self._tell_change()
        self._stream.close()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def patience_s(come_bytes: int, whole_s: float) -> float:
    """Time that a message or body has since it began, if so many bytes have come."""
    return min(whole_s, GRACE_S + come_bytes / PACE_BYTES)


def _event_of(message: str | bytes) -> TextMessage | BytesMessage:
    if isinstance(message, str):
        return TextMessage(data=message)
    return BytesMessage(data=message)


def _sent_bytes(part: str | bytes | bytearray) -> int:
    """Bytes of a piece of a message as it was sent: of text, in UTF-8."""
    if isinstance(part, str) and not part.isascii():
        return len(part.encode())
    return len(part)


def _held_bytes(message: str | bytes) -> int:
    """Memory that it takes while it waits."""
    return sys.getsizeof(message) + _MESSAGE_BYTES


def _joined(parts: list[str | bytes]) -> str | bytes:
    texts = [one for one in parts if isinstance(one, str)]
    if texts:
        return "".join(texts)
    return b"".join(one for one in parts if isinstance(one, bytes))
