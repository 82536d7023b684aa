"""One connection across a link: delivers the bytes of each side to the other when they are due.

A flow is one direction. A task reads from the source while its lane and the link have room; the
pump delivers to the target. A close, end or reset reaches the other side after the delay. A
target that does not read stalls only its own flow.
"""

import socket
import struct
from typing import assert_never

import trio

from sim.processes.wan.link import Ended, Lane, Link, Piece
from sim.processes.wan.pump import Pump

_READS_MAX = 32
"""Pieces read between two turns of the scheduler."""

_VECTOR_LENGTH_MAX = 256


class Connection:
    """Two sockets, with a flow each way."""

    def __init__(
        self, near: socket.socket, far: socket.socket, there: Link, back: Link, pump: Pump
    ) -> None:
        self._sockets = (near, far)
        self._pump = pump
        self._over = trio.Event()
        self.there = Flow(self, near, far, Lane(there))
        self.back = Flow(self, far, near, Lane(back))

    @property
    def flows(self) -> tuple["Flow", "Flow"]:
        """Both directions."""
        return self.there, self.back

    async def run(self) -> None:
        """Carry bytes until both sides have ended or one was reset."""
        try:
            async with trio.open_nursery() as nursery:
                for flow in self.flows:
                    nursery.start_soon(flow.read)
                    nursery.start_soon(flow.push)
                await self._over.wait()
                nursery.cancel_scope.cancel(reason="the connection is over")
        finally:
            self.close()

    def close(self) -> None:
        """Close both sockets and discard the bytes in flight."""
        self._over.set()
        for flow in self.flows:
            flow.lane.drop()
        for each in self._sockets:
            close_socket(each)

    def call_at(self, due_s: float, flow: "Flow") -> None:
        """Schedule a flow to deliver at `due_s`."""
        self._pump.call_at(due_s, flow)

    def ended(self) -> None:
        """Note that a flow has delivered the end of its stream."""
        if all(flow.has_delivered_end for flow in self.flows):
            self._over.set()

    def reset(self, target: socket.socket) -> None:
        """Pass on a reset that has arrived."""
        abort_socket(target)
        self._over.set()

    def broke(self, flow: "Flow", now_s: float) -> None:
        """Note that a flow's target is gone; its source learns this after the delay."""
        other = self.there if flow is self.back else self.back
        other.end(Ended.RESET, now_s)


class Flow:
    """One direction of a connection.

    Invariants:
    1. While the lane holds pieces, exactly one wake-up is pending: a call of the pump, the
       target becoming writable, or the link being healed.
    2. The source is not read after its end.
    """

    def __init__(
        self, connection: Connection, source: socket.socket, target: socket.socket, lane: Lane
    ) -> None:
        self.lane = lane
        self.has_delivered_end = False
        self._connection = connection
        self._source = source
        self._target = target
        self._is_called = False
        self._is_parked = False
        self._is_read_out = False
        self._is_reset = False
        self._room = trio.Event()
        self._blocked = trio.Event()

    def put(self, piece: Piece, now_s: float) -> None:
        """Send a piece on its way."""
        self.lane.put(piece, now_s)
        if not self._is_called:
            self._call()

    def end(self, how: Ended, now_s: float) -> None:
        """End the stream here and stop reading from the source."""
        self._is_read_out = True
        if not self._is_reset:
            self._is_reset = how is Ended.RESET
            self.put(how, now_s)

    async def read(self) -> None:
        """Read from the source until it ends, whenever there is room."""
        reads_count = 0
        while True:
            await self._wait_room()
            try:
                piece = self._source.recv(self.lane.link.piece_bytes)
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_readable(self._source)
                except trio.ClosedResourceError:
                    return
                continue
            except OSError:
                self.end(Ended.RESET, trio.current_time())
                return
            if self._is_read_out:
                return  # The target is gone, which ended this flow during the wait.
            if piece:
                self.put(piece, trio.current_time())
            else:
                self.end(Ended.FINISHED, trio.current_time())
            reads_count += 1
            if reads_count % _READS_MAX == 0:
                await trio.lowlevel.checkpoint()

    async def push(self) -> None:
        """Resume delivery whenever a blocked target becomes writable."""
        while not self.has_delivered_end:
            await self._blocked.wait()
            try:
                await trio.lowlevel.wait_writable(self._target)
            except trio.ClosedResourceError:
                return
            self._blocked = trio.Event()
            self._is_called = False
            self.deliver(trio.current_time())

    def deliver(self, now_s: float) -> None:
        """Deliver the pieces that are due. Called by the pump."""
        if self._blocked.is_set():
            return
        self._is_called = False
        if self.lane.link.conditions.is_cut:
            self._is_called = self._is_parked = True
            return
        pieces = self.lane.take_due(now_s)
        rest = self._hand_over(pieces, now_s)
        if rest:
            self.lane.give_back(rest, now_s)
            self._is_called = True
            self._blocked.set()
        else:
            self._call()
        if self.lane.has_room:
            self._room.set()

    def heal(self, now_s: float) -> None:
        """Resume after the link was healed."""
        self.lane.send_again(now_s)
        if self._is_parked:
            self._is_parked = False
            self._call()

    def _call(self) -> None:
        """Schedule the delivery of the next piece, if there is one."""
        due_s = self.lane.due_s
        self._is_called = due_s is not None
        if due_s is not None:
            self._connection.call_at(due_s, self)

    async def _wait_room(self) -> None:
        while not self.lane.has_room:
            self._room = trio.Event()
            await self._room.wait()
        room_at_s = self.lane.link.room_at_s
        while room_at_s > trio.current_time():
            await trio.sleep_until(room_at_s)
            room_at_s = self.lane.link.room_at_s  # Another connection may have taken the room.

    def _hand_over(self, pieces: list[Piece], now_s: float) -> list[Piece]:
        """Give the target as much as it accepts; return the rest."""
        buffers = [piece for piece in pieces if isinstance(piece, bytes)]
        ends = [piece for piece in pieces if isinstance(piece, Ended)]
        try:
            left = _send(self._target, buffers)
            if left:
                return [*left, *ends]
            for end in ends:
                self._hand_over_end(end)
        except OSError:
            self._is_read_out = True
            self.lane.drop()
            self._connection.broke(self, now_s)
        return []

    def _hand_over_end(self, end: Ended) -> None:
        match end:
            case Ended.FINISHED:
                self.has_delivered_end = True
                self._target.shutdown(socket.SHUT_WR)
                self._connection.ended()
            case Ended.RESET:
                self.has_delivered_end = True
                self._connection.reset(self._target)
            case _:
                assert_never(end)


def close_socket(each: socket.socket) -> None:
    """Close at once and wake the tasks that wait for it."""
    if each.fileno() >= 0:
        trio.lowlevel.notify_closing(each)
        each.close()


def abort_socket(each: socket.socket) -> None:
    """Close with a reset, like a process that ends with bytes unread."""
    if each.fileno() >= 0:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    close_socket(each)


def _send(target: socket.socket, buffers: list[bytes]) -> list[bytes]:
    """Send as much as the kernel accepts now; return the rest."""
    first = 0
    while first < len(buffers):
        try:
            sent_bytes = target.sendmsg(buffers[first : first + _VECTOR_LENGTH_MAX])
        except BlockingIOError:
            break
        while first < len(buffers) and sent_bytes >= len(buffers[first]):
            sent_bytes -= len(buffers[first])
            first += 1
        if sent_bytes:
            buffers[first] = buffers[first][sent_bytes:]
    return buffers[first:]
