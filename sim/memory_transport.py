"""The transport seam in one process: hosts on a network that a test may cut, kill, slow down.

Theory of operation. A connection is two pipes, one per direction. A pipe holds what was sent
and not yet received, `PIPE_BYTES_MAX` at most, each piece with the time when it arrives; the
sender waits for room, the receiver for a piece whose time has come. Latency is asked once per
piece, and no piece overtakes another. Everything goes by trio's clock and nothing here is
random, so that one test has one history.

A cut between two hosts holds back what is under way and all that follows, as a network does
that drops packets; `mend` lets it arrive. `kill` resets the connections of a host and ends its
listeners; the host lives again when somebody listens there or connects from there.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

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

Latency = Callable[[str, str], float]
"""Seconds that the next piece takes from the first host to the second."""

PIPE_BYTES_MAX = 1 << 20
"""What a connection holds per direction, as a kernel's buffers do: then the sender waits."""

_BACKLOG_LENGTH = 128
_PORT_FREE_FIRST = 40_000


def _no_latency(_from_host: str, _to_host: str) -> float:
    return 0.0


@attrs.define(eq=False)
class MemoryNetwork:
    """All hosts, by name, and the links between them."""

    latency_s: Latency = _no_latency
    _listeners: "dict[Address, MemoryListener]" = attrs.field(factory=dict, init=False)
    _streams: "list[MemoryStream]" = attrs.field(factory=list, init=False)
    _cut_links: set[frozenset[str]] = attrs.field(factory=set, init=False)
    _ports_given_count: int = attrs.field(default=0, init=False)
    _links_moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    def transport(self, host: str) -> "MemoryTransport":
        """The transport of a process on that host."""
        return MemoryTransport(self, host)

    def cut(self, one: str, other: str) -> None:
        """Let nothing through between two hosts, in either direction, and tell nobody."""
        self._cut_links.add(frozenset((one, other)))

    def mend(self, one: str, other: str) -> None:
        """End a cut: what was held back arrives."""
        self._cut_links.discard(frozenset((one, other)))
        self._links_moved.set()
        self._links_moved = trio.Event()
        for stream in self._streams:
            stream.wake()

    def is_cut(self, one: str, other: str) -> bool:
        """Whether the link between two hosts is cut now."""
        return frozenset((one, other)) in self._cut_links

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts; both sides are told unless they are cut."""
        for stream in list(self._streams):
            if {stream.host, stream.peer_host} == {one, other}:
                stream.reset()

    def kill(self, host: str) -> None:
        """End what runs on a host: its connections are reset, its listeners are gone."""
        for listener in [
            each for each in self._listeners.values() if each.address.host == host
        ]:
            listener.close()
        for stream in list(self._streams):
            if host in (stream.host, stream.peer_host):
                stream.reset()

    def vanish(self, host: str) -> None:
        """Break all connections of a host, and refuse new ones; what runs there is not told.

        Its listeners wait for ever: the host itself is to be ended next.
        """
        for listener in [
            each for each in self._listeners.values() if each.address.host == host
        ]:
            self.forget_listener(listener)
        for stream in list(self._streams):
            if host in (stream.host, stream.peer_host):
                stream.reset()

    async def wait_uncut(self, one: str, other: str) -> None:
        """Wait until something can pass between two hosts."""
        while self.is_cut(one, other):
            await self._links_moved.wait()

    def listen(self, address: Address) -> "MemoryListener":
        """Take an address, a free port if it is 0."""
        port = address.port
        if not port:
            port = _PORT_FREE_FIRST + self._ports_given_count
            self._ports_given_count += 1
        real = Address(address.host, port)
        if real in self._listeners:
            raise AddressInUseError(
                f"another process listens on {real}: end it, or choose another port"
            )
        listener = MemoryListener(self, real)
        self._listeners[real] = listener
        return listener

    def forget_listener(self, listener: "MemoryListener") -> None:
        """Free the listener's address."""
        self._listeners.pop(listener.address, None)

    def forget_stream(self, stream: "MemoryStream") -> None:
        """Drop a stream that is closed."""
        self._streams.remove(stream)

    def join(self, host: str, address: Address) -> "MemoryStream":
        """Connect a host to a listener, at once."""
        listener = self._listeners.get(address)
        if listener is None or listener.is_full:
            raise ConnectionFailedError(f"cannot connect to {address}: connection refused")
        there, back = _Pipe(), _Pipe()
        near = MemoryStream(str(address), self, host, address.host, there, back)
        far = MemoryStream(host, self, address.host, host, back, there)
        self._streams += [near, far]
        listener.offer(far)
        return near


@attrs.define(eq=False)
class _Pipe:
    """Bytes on their way in one direction."""

    held_bytes: int = 0
    is_ended: bool = False
    """The sender closed: the end comes after the pieces."""
    is_refused: bool = False
    """The receiver closed: what is still sent breaks the connection."""
    is_reset: bool = False
    arrives_s_last: float = 0.0
    _pieces: deque[tuple[float, memoryview]] = attrs.field(factory=deque)
    _moved: trio.Event = attrs.field(factory=trio.Event)

    def push(self, piece: bytes, arrives_s: float) -> None:
        """Send a piece; it arrives at `arrives_s`, or with the one before if that is later."""
        self.arrives_s_last = max(arrives_s, self.arrives_s_last)
        self._pieces.append((self.arrives_s_last, memoryview(piece)))
        self.held_bytes += len(piece)
        self.wake()

    def pull_into(self, buffer: memoryview, now_s: float) -> int:
        """Receive what has arrived, as much as the buffer takes."""
        received_bytes = 0
        while self._pieces and self._pieces[0][0] <= now_s and received_bytes < len(buffer):
            arrived_s, piece = self._pieces.popleft()
            count = min(len(piece), len(buffer) - received_bytes)
            buffer[received_bytes : received_bytes + count] = piece[:count]
            received_bytes += count
            if count < len(piece):
                self._pieces.appendleft((arrived_s, piece[count:]))
        if received_bytes:
            self.held_bytes -= received_bytes
            self.wake()
        return received_bytes

    def is_at_end(self, now_s: float) -> bool:
        """Whether all is received and no more will come."""
        return self.is_ended and not self._pieces and self.arrives_s_last <= now_s

    def next_s(self, now_s: float) -> float:
        """When a receiver should look again if nobody wakes it."""
        if self._pieces:
            return self._pieces[0][0]
        return (
            self.arrives_s_last if self.is_ended and self.arrives_s_last > now_s else math.inf
        )

    def wake(self) -> None:
        """Have both sides look again."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_moved(self) -> None:
        """Wait for a change made by the other side, or by the network."""
        await self._moved.wait()


@attrs.define(eq=False)
class MemoryStream:
    """One side of a connection."""

    peer: str
    _network: MemoryNetwork
    host: str
    peer_host: str
    _outgoing: _Pipe
    _incoming: _Pipe
    _is_closed: bool = attrs.field(default=False, init=False)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all bytes; wait while the pipe is full."""
        await trio.lowlevel.checkpoint()
        unsent = memoryview(b"".join(buffers))
        while unsent:
            self._check_unbroken(self._outgoing)
            unsent = unsent[self._push(unsent) :]
            if unsent:
                await self._outgoing.wait_moved()

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """Send what the pipe has room for."""
        self._check_unbroken(self._outgoing)
        return self._push(memoryview(b"".join(buffers)))

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Wait for bytes that have arrived; 0 at the end."""
        assert len(buffer), "an empty buffer would look like the end of the stream"
        await trio.lowlevel.checkpoint()
        while True:
            self._check_unbroken(self._incoming)
            next_s = math.inf
            if not self._network.is_cut(self.host, self.peer_host):
                now_s = trio.current_time()
                received_bytes = self._incoming.pull_into(memoryview(buffer), now_s)
                if received_bytes or self._incoming.is_at_end(now_s):
                    return received_bytes
                next_s = self._incoming.next_s(now_s)
            with trio.move_on_at(next_s):
                await self._incoming.wait_moved()

    def close(self) -> None:
        """Close at once; the other side reads what was sent, then the end."""
        if self._is_closed:
            return
        self._is_closed = True
        now_s = trio.current_time()
        latency_s = self._network.latency_s(self.host, self.peer_host)
        self._outgoing.is_ended = True
        self._outgoing.arrives_s_last = max(self._outgoing.arrives_s_last, now_s + latency_s)
        self._incoming.is_refused = True
        self._network.forget_stream(self)
        self.wake()

    def reset(self) -> None:
        """Break the connection; what is under way is lost."""
        self._outgoing.is_reset = self._incoming.is_reset = True
        self.wake()

    def wake(self) -> None:
        """Have all that wait on either side look again."""
        self._outgoing.wake()
        self._incoming.wake()

    def _push(self, unsent: memoryview) -> int:
        room_bytes = PIPE_BYTES_MAX - self._outgoing.held_bytes
        piece = bytes(unsent[:room_bytes])
        if piece:
            latency_s = self._network.latency_s(self.host, self.peer_host)
            self._outgoing.push(piece, trio.current_time() + latency_s)
        return len(piece)

    def _check_unbroken(self, pipe: _Pipe) -> None:
        if self._is_closed:
            raise ConnectionFailedError(f"the connection to {self.peer} was closed here")
        if self._network.is_cut(self.host, self.peer_host):
            return  # The news of a reset does not pass either.
        if pipe.is_reset or (pipe is self._outgoing and pipe.is_refused):
            raise ConnectionFailedError(f"the connection to {self.peer} broke: it was reset")


@attrs.define(eq=False)
class MemoryListener:
    """A place where others connect to."""

    _network: MemoryNetwork
    address: Address
    _backlog: deque[MemoryStream] = attrs.field(factory=deque, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_full(self) -> bool:
        """Whether as many connections wait to be accepted as may."""
        return len(self._backlog) >= _BACKLOG_LENGTH

    def offer(self, stream: MemoryStream) -> None:
        """Queue a connection for `accept`."""
        self._backlog.append(stream)
        self._wake()

    async def accept(self) -> ByteStream:
        """Wait for the next connection."""
        await trio.lowlevel.checkpoint()
        while not self._backlog and not self._is_closed:
            await self._moved.wait()
        if self._is_closed:
            raise ConnectionFailedError(f"no longer listening on {self.address}")
        return self._backlog.popleft()

    def close(self) -> None:
        """Stop listening; connections that nobody accepted are reset."""
        self._is_closed = True
        self._network.forget_listener(self)
        for stream in self._backlog:
            stream.reset()
        self._backlog.clear()
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()


@attrs.frozen
class MemoryTransport:
    """`Transport` of the processes on one host of a `MemoryNetwork`."""

    _network: MemoryNetwork
    host: str

    async def connect(self, address: Address) -> ByteStream:
        """Connect after one round trip; behind a cut, wait for its end."""
        await trio.lowlevel.checkpoint()
        for one, other in ((self.host, address.host), (address.host, self.host)):
            await self._network.wait_uncut(one, other)
            latency_s = self._network.latency_s(one, other)
            if latency_s:
                await trio.sleep(latency_s)
        return self._network.join(self.host, address)

    async def listen(self, address: Address) -> Listener:
        """Listen on this host."""
        await trio.lowlevel.checkpoint()
        if address.host != self.host:
            raise InvalidArgumentError(
                f"cannot listen on {address}: not an address of {self.host}"
            )
        return self._network.listen(address)
