"""The transport seam in one process: a network of hosts that a test can cut, kill or slow down.

Theory of operation. A connection is two pipes, one per direction. A pipe holds at most
`pipe_bytes_max` bytes that were sent but not yet received, each piece with its arrival time.
The sender waits for room, the receiver for the next arrival. The latency is asked once per
piece, and no piece overtakes another. Everything uses trio's clock and nothing here is random,
so a test always has the same history.

A cut from one host to another holds back the bytes in flight and all later ones, like a network
that drops packets; `mend` lets them arrive. While the way back is cut, a sender does not learn
that there is room again. `kill` resets the connections of a host and closes its listeners; the
host is back as soon as a process listens there or connects from there.
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
from sim.fakes.memory_pipe import MemoryPipe
from sim.waits import sleep
from topology.errors import InvalidArgumentError

Buffer = bytes | bytearray | memoryview

Latency = Callable[[str, str], float]
"""Latency in seconds of the next piece from the first host to the second."""

PIPE_BYTES_MAX = 1 << 20
"""Bytes in flight per direction, like the buffers of a kernel; when full, the sender waits."""

_BACKLOG_LENGTH = 128
_PORT_FREE_FIRST = 40_000


Observer = Callable[[str, "MemoryStream", Buffer], None]
"""Called with the event, the side of the connection, and the bytes."""


def _no_latency(_from_host: str, _to_host: str) -> float:
    return 0.0


def _no_delay(_host: str) -> float:
    return 0.0


def _all_at_once(_host: str) -> int:
    return PIPE_BYTES_MAX


def _observe_nothing(_what: str, _stream: "MemoryStream", _piece: Buffer) -> None:
    pass


@attrs.define(eq=False)
class MemoryNetwork:
    """All hosts, by name, and the links between them."""

    latency_s: Latency = _no_latency
    receive_delay_s: Callable[[str], float] = _no_delay
    """Current delay of a host before it receives arrived bytes."""
    receive_bytes_max: Callable[[str], int] = _all_at_once
    """Current maximum that a host receives at once."""
    pipe_bytes_max: int = PIPE_BYTES_MAX
    """Maximum bytes in flight per direction of a connection."""
    observe: Observer = _observe_nothing
    _listeners: "dict[Address, MemoryListener]" = attrs.field(factory=dict, init=False)
    _streams: "dict[MemoryStream, None]" = attrs.field(factory=dict, init=False)
    """Open sides of connections, oldest first."""
    _cut_ways: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    _dark_hosts: set[str] = attrs.field(factory=set, init=False)
    _connections_count: int = attrs.field(default=0, init=False)
    _ports_given_count: int = attrs.field(default=0, init=False)
    _links_moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    def transport(self, host: str) -> "MemoryTransport":
        """The transport of a process on this host."""
        return MemoryTransport(self, host)

    def cut(self, one: str, other: str) -> None:
        """Silently block all traffic between two hosts, in both directions."""
        self._cut_ways |= {(one, other), (other, one)}

    def cut_one_way(self, sender: str, receiver: str) -> None:
        """Block traffic from one host to another; the way back stays open."""
        self._cut_ways.add((sender, receiver))

    def mend(self, one: str, other: str) -> None:
        """End a one-way or two-way cut; held-back bytes arrive."""
        self._cut_ways -= {(one, other), (other, one)}
        self._move_links()

    def darken(self, host: str) -> None:
        """Cut the power of a host: silently block all its traffic."""
        self._dark_hosts.add(host)

    def lighten(self, host: str) -> None:
        """Restore the power of a host."""
        self._dark_hosts.discard(host)
        self._move_links()

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Whether traffic from one host to another is blocked now."""
        return (
            (sender, receiver) in self._cut_ways
            or sender in self._dark_hosts
            or receiver in self._dark_hosts
        )

    def _move_links(self) -> None:
        self._links_moved.set()
        self._links_moved = trio.Event()
        for stream in self._streams:
            stream.on_links_moved()

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts; both sides see it unless they are cut."""
        for stream in list(self._streams):
            if {stream.host, stream.peer_host} == {one, other}:
                stream.reset()

    def kill(self, host: str) -> None:
        """Reset all connections of a host and close its listeners."""
        for listener in [
            each for each in self._listeners.values() if each.address.host == host
        ]:
            listener.close()
        for stream in list(self._streams):
            if host in (stream.host, stream.peer_host):
                stream.reset()

    def vanish(self, host: str) -> None:
        """Break all connections of a host and refuse new ones, without telling its processes.

        Its listeners wait forever: the caller must end the host next.
        """
        for listener in [
            each for each in self._listeners.values() if each.address.host == host
        ]:
            self.forget_listener(listener)
        for stream in list(self._streams):
            if host in (stream.host, stream.peer_host):
                stream.reset()
            if stream.host == host:
                self.forget_stream(stream)

    def streams_of(self, host: str) -> "list[MemoryStream]":
        """The open sides of connections on a host, oldest first."""
        return [stream for stream in self._streams if stream.host == host]

    async def wait_uncut(self, sender: str, receiver: str) -> None:
        """Wait until traffic can pass from one host to another."""
        while self.is_cut(sender, receiver):
            await self._links_moved.wait()

    def listen(self, address: Address) -> "MemoryListener":
        """Listen on an address; port 0 means a free port."""
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
        """Drop a closed stream."""
        self._streams.pop(stream, None)

    def join(self, host: str, address: Address) -> "MemoryStream":
        """Connect a host to a listener at once."""
        listener = self._listeners.get(address)
        if listener is None or listener.is_full:
            raise ConnectionFailedError(f"cannot connect to {address}: connection refused")
        there, back = MemoryPipe(), MemoryPipe()
        self._connections_count += 1
        number = self._connections_count
        near = MemoryStream(str(address), number, self, host, address.host, there, back)
        far = MemoryStream(host, number, self, address.host, host, back, there)
        self._streams |= {near: None, far: None}
        self.observe("connect", near, b"")
        listener.offer(far)
        return near


@attrs.define(eq=False)
class MemoryStream:
    """One side of a connection."""

    peer: str
    connection: int
    """The connection's number on its network."""
    _network: MemoryNetwork
    host: str
    peer_host: str
    _outgoing: MemoryPipe
    _incoming: MemoryPipe
    _is_closed: bool = attrs.field(default=False, init=False)

    @property
    def under_way_bytes(self) -> int:
        """Bytes sent from here and not known to be received."""
        return self._outgoing.held_bytes

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all bytes; wait while the pipe is full."""
        await trio.lowlevel.checkpoint()
        unsent = memoryview(b"".join(buffers))
        while unsent:
            self._check_may_send()
            unsent = unsent[self._push(unsent) :]
            if unsent:
                await self._outgoing.wait_moved()

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """Send as much as the pipe has room for."""
        self._check_may_send()
        return self._push(memoryview(b"".join(buffers)))

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Wait for bytes to arrive; 0 at the end of the stream."""
        assert len(buffer), "an empty buffer would look like the end of the stream"
        await trio.lowlevel.checkpoint()
        delay_s = self._network.receive_delay_s(self.host)
        if delay_s:
            await sleep(delay_s)
        while True:
            self._check_may_receive()
            next_s = math.inf
            if not self._is_deaf:
                now_s = trio.current_time()
                received_bytes = self._pull_into(memoryview(buffer), now_s)
                if received_bytes or self._incoming.is_at_end(now_s):
                    return received_bytes
                next_s = self._incoming.next_s(now_s)
            await self._incoming.wait_moved(until_s=next_s)

    def close(self) -> None:
        """Close at once; the other side reads the bytes already sent, then the end."""
        if self._is_closed:
            return
        self._is_closed = True
        now_s = trio.current_time()
        latency_s = self._network.latency_s(self.host, self.peer_host)
        self._outgoing.is_ended = True
        self._outgoing.arrives_s_last = max(self._outgoing.arrives_s_last, now_s + latency_s)
        self._incoming.is_refused = True
        self._network.forget_stream(self)
        self._network.observe("close", self, b"")
        self.wake()

    def reset(self) -> None:
        """Break the connection and lose the bytes in flight."""
        self._network.observe("reset", self, b"")
        self._outgoing.is_reset = self._incoming.is_reset = True
        self.wake()

    def break_after(self, kept_bytes: int) -> None:
        """Break the connection; `kept_bytes` of the bytes in flight from here still arrive."""
        self._network.observe("reset", self, b"")
        self._incoming.is_reset = True
        self._outgoing.break_after(kept_bytes)
        self.wake()

    def on_links_moved(self) -> None:
        """React to a change of the network's cuts."""
        if not self._network.is_cut(self.host, self.peer_host):
            self._incoming.tell_sender()
        self.wake()

    def wake(self) -> None:
        """Wake the waiting tasks of both sides."""
        self._outgoing.wake()
        self._incoming.wake()

    @property
    def _is_deaf(self) -> bool:
        return self._network.is_cut(self.peer_host, self.host)

    def _push(self, unsent: memoryview) -> int:
        room_bytes = self._network.pipe_bytes_max - self._outgoing.held_bytes
        piece = bytes(unsent[:room_bytes])
        if piece:
            latency_s = self._network.latency_s(self.host, self.peer_host)
            self._network.observe("send", self, piece)
            self._outgoing.push(piece, trio.current_time() + latency_s)
        return len(piece)

    def _pull_into(self, buffer: memoryview, now_s: float) -> int:
        room = buffer[: self._network.receive_bytes_max(self.host)]
        is_sender_told = not self._network.is_cut(self.host, self.peer_host)
        received_bytes = self._incoming.pull_into(room, now_s, is_sender_told=is_sender_told)
        if received_bytes:
            self._network.observe("deliver", self, room[:received_bytes])
        return received_bytes

    # A cut also blocks the news of a break.

    def _check_may_send(self) -> None:
        self._check_open()
        if self._outgoing.is_broken_for_sender and not self._is_deaf:
            raise ConnectionFailedError(f"the connection to {self.peer} broke: it was reset")

    def _check_may_receive(self) -> None:
        self._check_open()
        if self._incoming.is_broken_for_receiver and not self._is_deaf:
            raise ConnectionFailedError(f"the connection to {self.peer} broke: it was reset")

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionFailedError(f"the connection to {self.peer} was closed here")


@attrs.define(eq=False)
class MemoryListener:
    """An address that accepts connections."""

    _network: MemoryNetwork
    address: Address
    failures_count: int = attrs.field(default=0, init=False)
    _backlog: deque[MemoryStream] = attrs.field(factory=deque, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_full(self) -> bool:
        """Whether the backlog is full."""
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
        """Stop listening and reset connections that were not accepted."""
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
        """Connect after one round trip; wait for the end of a cut."""
        await trio.lowlevel.checkpoint()
        for one, other in ((self.host, address.host), (address.host, self.host)):
            await self._network.wait_uncut(one, other)
            latency_s = self._network.latency_s(one, other)
            if latency_s:
                await sleep(latency_s)
        return self._network.join(self.host, address)

    async def listen(
        self,
        address: Address,
        *,
        first_bytes_min: int = 1,  # noqa: ARG002 - it may, and here it does not.
    ) -> Listener:
        """Listen on this host."""
        await trio.lowlevel.checkpoint()
        if address.host != self.host:
            raise InvalidArgumentError(
                f"cannot listen on {address}: not an address of {self.host}"
            )
        return self._network.listen(address)
