"""TCP behind the transport seam: plain non-blocking sockets; try first, wait only if needed.

A stream calls the kernel at once and waits only when the call would block, which saves a turn
of trio's scheduler per call. After a read that took less than it had room for, it waits first:
nothing is left, and a call that fails costs as much as one that reads. A stream that has moved
`FAIR_BYTES` without waiting yields a turn anyway, so that a connection that never blocks cannot
starve the others.

A listener may know that no client can say anything in fewer than some bytes. Then the kernel
wakes the receiver of a new connection only once so many have come: thousands of clients that
send a byte now and then cost no turn for each.
"""

import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from geolog.transport.seam import (
    Address,
    AddressInUseError,
    ByteStream,
    ConnectionFailedError,
    Listener,
)
from topology.errors import InvalidArgumentError

Buffer = bytes | bytearray | memoryview

FAIR_BYTES = 4 << 20
"""Bytes that a stream moves between two turns of the scheduler: a millisecond of copying."""

_JOINED_BYTES_MAX = 8 << 10
"""Buffers below this are copied together: cheaper than another element of the vector."""
_VECTOR_LENGTH_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)
ACCEPTS_A_TURN = 32
ACCEPTS_A_TURN_S = 0.001
"""Connections that a listener takes between two turns of the scheduler, and for how long."""

_BACKLOG_LENGTH = 1024
"""Connections that may wait to be accepted: all writers come at once after a restart."""
_NOT_LISTENING = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
_OF_THE_PEER = {
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.EPROTO,
    errno.ETIMEDOUT,
    getattr(errno, "ENONET", errno.EPROTO),  # Exists only on Linux.
}
"""Errors of `accept` that concern one connection, which is gone: the next may succeed."""
_OPTIONS_ARE_INHERITED = sys.platform == "linux"
"""Whether a connection has the options of its listener: then they are set once."""
_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


@attrs.frozen(kw_only=True)
class TcpConfig:
    """Socket settings. Always in bytes."""

    send_buffer_bytes: int | None = None
    """Bytes the kernel holds for sending. None: it grows the buffer as needed, to its limit."""

    receive_buffer_bytes: int | None = None
    """Bytes the kernel holds unread. None: it grows the buffer as needed, to its limit."""

    notsent_lowat_bytes: int = 1 << 20
    """Wake a sender when less than this is unsent: 16 KiB would be too often to be fast."""

    accept_pause_s: float = 0.1
    """How long a listener waits when it cannot accept: no file descriptor or memory is left, or
    a firewall forbids it. Connections wait in the backlog meanwhile."""

    keepalive_idle_s: int = 30
    """Silence after which the kernel probes the peer, three times, then ends the connection. It
    bounds how long a machine that vanished holds memory here."""


@attrs.define(eq=False)
class TcpStream:
    """One connection. A cancelled `send` may have sent a part: then close the stream."""

    peer: str
    _socket: socket.socket
    _bytes_since_turn: int = attrs.field(default=0, init=False)
    _is_drained: bool = attrs.field(default=False, init=False)
    """Whether the last read took all that had arrived: the next one would most likely fail."""
    _awaited_bytes: int = 0
    """The kernel wakes a receiver only when so many bytes have come."""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all bytes, in order."""
        vector = _joined(buffers)
        first = 0
        while first < len(vector):
            sent_bytes = self._send_some(vector, first)
            if sent_bytes:
                first = _skip(vector, first, sent_bytes)
                await self._take_turns(sent_bytes)
            else:
                await self._wait(trio.lowlevel.wait_writable)

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """Send as much as the kernel takes at once."""
        vector = _joined(buffers)
        first = sent_bytes_all = 0
        while first < len(vector):
            sent_bytes = self._send_some(vector, first)
            if not sent_bytes:
                break
            first = _skip(vector, first, sent_bytes)
            sent_bytes_all += sent_bytes
        return sent_bytes_all

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Wait for bytes; 0 at the end of the stream."""
        assert len(buffer), "an empty buffer would look like the end of the stream"
        if self._is_drained:
            await self._wait_readable()
        while True:
            try:
                received_bytes = self._socket.recv_into(buffer)
            except BlockingIOError:
                await self._wait_readable()
            except OSError as error:
                raise self._broken(error) from error
            else:
                self._is_drained = received_bytes < len(buffer)
                if self._awaited_bytes:
                    self._await_fewer(received_bytes)
                await self._take_turns(received_bytes)
                return received_bytes

    def _await_fewer(self, received_bytes: int) -> None:
        self._awaited_bytes = max(0, self._awaited_bytes - received_bytes)
        awaited = max(1, self._awaited_bytes)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)

    def close(self) -> None:
        """Close at once; waiting tasks are woken."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def _send_some(self, vector: list[Buffer], first: int) -> int:
        """Send as much of the vector as the kernel takes now: 0 if nothing."""
        try:
            if first + 1 == len(vector):
                return self._socket.send(vector[first])
            return self._socket.sendmsg(vector[first : first + _VECTOR_LENGTH_MAX])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken(error) from error

    async def _take_turns(self, moved_bytes: int) -> None:
        # Each call counts as at least a page, so that many tiny ones yield, too.
        self._bytes_since_turn += max(moved_bytes, 4096)
        if self._bytes_since_turn >= FAIR_BYTES:
            self._bytes_since_turn = 0
            await trio.lowlevel.checkpoint()

    async def _wait_readable(self) -> None:
        await self._wait(trio.lowlevel.wait_readable)
        self._is_drained = False

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._bytes_since_turn = 0
        if self._socket.fileno() < 0:
            raise self._broken(trio.ClosedResourceError())
        try:
            await wait(self._socket)
        except (trio.ClosedResourceError, OSError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ConnectionFailedError:
        if self._socket.fileno() < 0:
            return ConnectionFailedError(f"the connection to {self.peer} was closed here")
        return ConnectionFailedError(f"the connection to {self.peer} broke: {_reason(error)}")


@attrs.define(eq=False)
class TcpListener:
    """A listening socket."""

    address: Address
    _socket: socket.socket
    _config: TcpConfig
    _first_bytes_min: int = 1
    failures_count: int = attrs.field(default=0, init=False)
    _accepts_since_turn: int = attrs.field(default=0, init=False)
    _turn_end_s: float = attrs.field(default=0.0, init=False)

    async def accept(self) -> ByteStream:
        """Wait for the next connection. ConnectionFailedError once the listener is closed.

        A connection that broke meanwhile is skipped; if the machine has no room for one, accept
        is retried after a pause. Both are counted, and neither ends the listener.
        """
        while True:
            await self._take_turns()
            try:
                return self._accept_nowait()
            except BlockingIOError:
                await self._wait()
            except OSError as error:
                if self._socket.fileno() < 0 or error.errno in _NOT_LISTENING:
                    raise self._closed(error) from error
                self.failures_count += 1
                if error.errno not in _OF_THE_PEER:
                    await trio.sleep(self._config.accept_pause_s)

    async def _take_turns(self) -> None:
        """Others get turns during a flood of connections.

        A turn may take long if there are many others. One connection in each would leave good
        ones waiting behind all those that say nothing.
        """
        now_s = trio.current_time()
        if not self._accepts_since_turn:
            self._turn_end_s = now_s + ACCEPTS_A_TURN_S
        elif self._accepts_since_turn >= ACCEPTS_A_TURN or now_s >= self._turn_end_s:
            self._accepts_since_turn = 0
            await trio.lowlevel.checkpoint()
            self._turn_end_s = trio.current_time() + ACCEPTS_A_TURN_S
        self._accepts_since_turn += 1

    def _accept_nowait(self) -> TcpStream:
        connection, peer = self._socket.accept()
        try:
            connection.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
            if not _OPTIONS_ARE_INHERITED:
                _set_up(connection, self._config)
        except OSError as error:  # The peer has reset it, or there is no memory for it.
            connection.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, _reason(error)) from error
        awaited_bytes = self._first_bytes_min if self._first_bytes_min > 1 else 0
        return TcpStream(f"{peer[0]}:{peer[1]}", connection, awaited_bytes=awaited_bytes)

    def close(self) -> None:
        """Stop listening; tasks waiting in `accept` are woken."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _wait(self) -> None:
        self._accepts_since_turn = 0
        try:
            await trio.lowlevel.wait_readable(self._socket)
        except (trio.ClosedResourceError, OSError) as error:
            raise self._closed(error) from error

    def _closed(self, error: Exception) -> ConnectionFailedError:
        return ConnectionFailedError(f"no longer listening on {self.address}: {_reason(error)}")


@attrs.frozen
class TcpTransport:
    """`Transport` over TCP."""

    config: TcpConfig = attrs.field(factory=TcpConfig)

    async def connect(self, address: Address) -> ByteStream:
        """Connect to the first of the host's addresses that answers."""
        reasons = []
        for family, where in await _addresses(address):
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                _set_up(connection, self.config)
                await _connect(connection, where)
            except OSError as error:
                connection.close()
                reasons.append(_reason(error))
            except BaseException:
                connection.close()
                raise
            else:
                return TcpStream(str(address), connection)
        raise ConnectionFailedError(f"cannot connect to {address}: {', '.join(reasons)}")

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen on the first of the host's addresses."""
        try:
            family, where = (await _addresses(address))[0]
        except ConnectionFailedError as error:
            raise InvalidArgumentError(f"cannot listen on {address}: {error}") from error
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _set_up(listening, self.config)
            if first_bytes_min > 1:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, first_bytes_min)
            listening.bind(where)
            listening.listen(_BACKLOG_LENGTH)
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(
                    f"another process listens on {address}: end it, or choose another port"
                ) from error
            raise InvalidArgumentError(
                f"cannot listen on {address}: {_reason(error)}"
            ) from error
        port = listening.getsockname()[1]
        real = Address(address.host, port)
        return TcpListener(real, listening, self.config, first_bytes_min)


async def _addresses(address: Address) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = await trio.socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise ConnectionFailedError(f"unknown host in {address}: {_reason(error)}") from error
    return [(family, (str(where[0]), int(where[1]))) for family, _, _, _, where in found]


async def _connect(connection: socket.socket, where: tuple[str, int]) -> None:
    try:
        connection.connect(where)
    except BlockingIOError:
        await trio.lowlevel.wait_writable(connection)
    failure = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        raise OSError(failure, os.strerror(failure))


def _set_up(connection: socket.socket, config: TcpConfig) -> None:
    connection.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
    tcp, level = socket.IPPROTO_TCP, socket.SOL_SOCKET
    connection.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connection.setsockopt(tcp, _NOTSENT_LOWAT, config.notsent_lowat_bytes)
    connection.setsockopt(level, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, config.keepalive_idle_s)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, max(1, config.keepalive_idle_s // 3))
    connection.setsockopt(tcp, socket.TCP_KEEPCNT, 3)
    if config.send_buffer_bytes is not None:
        connection.setsockopt(level, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes is not None:
        connection.setsockopt(level, socket.SO_RCVBUF, config.receive_buffer_bytes)


def _joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes, with small neighbours copied together and empty buffers removed."""
    vector: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) >= _JOINED_BYTES_MAX:
            if small:
                vector.append(b"".join(small))
                small = []
            vector.append(buffer)
        elif len(buffer):
            small.append(buffer)
    if small:
        vector.append(small[0] if len(small) == 1 else b"".join(small))
    return vector


def _skip(vector: list[Buffer], first: int, sent_bytes: int) -> int:
    """Index of the first buffer with bytes left; it is cut to these."""
    while first < len(vector) and sent_bytes >= len(vector[first]):
        sent_bytes -= len(vector[first])
        first += 1
    if sent_bytes:
        vector[first] = memoryview(vector[first])[sent_bytes:]
    return first


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
