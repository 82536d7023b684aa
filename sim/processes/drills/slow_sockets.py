"""Opens connections to a proxy that say next to nothing, in a process of its own.

`python -P -m sim.processes.drills.slow_sockets WEBSOCKET HTTP SOURCE STANDING PER_S DURATION_S`

STANDING of them send one byte of a request each second. When the proxy closes one after some
time, it is opened again at once, so that so many do stand; one that it turns away comes again
after a second. One of five uses HTTP, where a proxy takes fewer connections, and the others are
WebSockets. PER_S more are opened each second, half of them HTTP, send half of a request's head,
and leave soon. All come from the address SOURCE. At the end it prints its counts, and the
processor time that it took, as JSON.

One loop over plain sockets: a task for each would take more of the machine than the proxy does.
"""

import errno
import json
import resource
import select
import socket
import struct
import sys
import time
from collections import deque

import attrs
import trio

from geolog.transport.seam import Address

_HEAD = b"GET /v1/session HTTP/1.1\r\nhost: proxy\r\nupgrade: websocket\r\nfiller: "
_TICK_S = 0.01
_TICKS_BETWEEN_BYTES = 100
_COMING_S = 1.0
"""The standing ones are opened within this time, not all at once."""
_HELD_S = 0.2
_AGAIN_S = 1.0
_STOOD_S = 3.0
"""One that the proxy has closed sooner was turned away."""
_HTTP_OF = 5
"""Of so many that stand, one is HTTP: half the connections that a proxy takes there, by default
1,000, are the share of one address, and some must be left to those that leave soon."""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""Leaves no port behind that waits: there are fewer than a minute's connections."""
_BIND_ADDRESS_NO_PORT = 24
"""Of Linux: the port is chosen when it connects, so many may have the same."""
_DESCRIPTORS_SPARE = 1000
_EVENTS = select.EPOLLIN | select.EPOLLRDHUP


@attrs.define(eq=False)
class _Slow:
    """One connection."""

    socket: socket.socket
    number: int
    """Of a standing one: its place. -1: it leaves soon."""
    is_open: bool = False
    opened_s: float = 0.0
    sent_count: int = 0


@attrs.define
class SlowSockets:
    """All connections of this process, and their counts."""

    places: tuple[Address, Address]
    source: str
    opened: int = 0
    unopened: int = 0
    closed_by_proxy: int = 0
    standing: int = 0
    standing_most: int = 0
    standing_least: int = 0
    """The fewest that stood at a time, once all have come."""
    _poll: select.epoll = attrs.field(factory=select.epoll)
    _by_descriptor: dict[int, _Slow] = attrs.field(factory=dict)
    _due: deque[tuple[float, int]] = attrs.field(factory=deque)
    """When to open a standing connection again, and its place."""
    _leaving: deque[tuple[float, _Slow]] = attrs.field(factory=deque)
    _dripping: list[set[_Slow]] = attrs.field(
        factory=lambda: [set() for _ in range(_TICKS_BETWEEN_BYTES)]
    )

    async def run(self, standing_count: int, per_s: float, duration_s: float) -> None:
        """Open and hold connections for so long."""
        began_s, visits, tick = trio.current_time(), 0, 0
        for number in range(standing_count):
            self._due.append((began_s + _COMING_S * number / standing_count, number))
        while (now_s := trio.current_time()) < began_s + duration_s:
            while self._due and self._due[0][0] <= now_s:
                self._open(self._due.popleft()[1])
            for _ in range(visits, int((now_s - began_s) * per_s)):
                visits += 1
                visit = self._open(-1, visits)
                if visit is not None:
                    self._leaving.append((now_s + _HELD_S, visit))
            while self._leaving and self._leaving[0][0] <= now_s:
                self._leave(self._leaving.popleft()[1])
            while tick * _TICK_S <= now_s - began_s:
                self._drip(self._dripping[tick % _TICKS_BETWEEN_BYTES])
                tick += 1
            await trio.sleep(_TICK_S)
            for descriptor, events in self._poll.poll(0):
                self._on_events(self._by_descriptor[descriptor], events)
            if now_s < began_s + 2 * _COMING_S:
                self.standing_least = self.standing
            self.standing_least = min(self.standing, self.standing_least)

    def _open(self, number: int, turn: int = 0) -> _Slow | None:
        """Begin to open a connection."""
        is_http = turn % 2 if number < 0 else number % _HTTP_OF == 0
        place = self.places[1 if is_http else 0]
        opened = socket.socket()
        try:
            opened.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            opened.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            opened.bind((self.source, 0))
            failure = opened.connect_ex((place.host, place.port))
        except OSError:
            failure = errno.EADDRNOTAVAIL
        slow = _Slow(opened, number)
        if failure not in (0, errno.EINPROGRESS):
            self.unopened += 1
            opened.close()
            self._come_again(slow)
            return None
        self._by_descriptor[opened.fileno()] = slow
        self._poll.register(opened, _EVENTS | select.EPOLLOUT)
        return slow

    def _come_again(self, slow: _Slow) -> None:
        if slow.number >= 0:
            now_s = trio.current_time()
            if slow.is_open and now_s >= slow.opened_s + _STOOD_S:
                self._due.appendleft((now_s, slow.number))
            else:
                self._due.append((now_s + _AGAIN_S, slow.number))

    def _on_events(self, slow: _Slow, events: int) -> None:
        if not slow.is_open and events & (select.EPOLLERR | select.EPOLLHUP):
            self.unopened += 1
            self._close(slow)
            self._come_again(slow)
            return
        if not slow.is_open:
            self._poll.modify(slow.socket, _EVENTS)
            self._on_open(slow)
        if events & ~select.EPOLLOUT and not self._still_reads(slow):
            self._on_closed(slow)

    def _on_open(self, slow: _Slow) -> None:
        slow.is_open = True
        slow.opened_s = trio.current_time()
        self.opened += 1
        if slow.number < 0:
            self._send(slow, _HEAD)
            return
        self.standing += 1
        self.standing_most = max(self.standing, self.standing_most)
        self._dripping[slow.number % _TICKS_BETWEEN_BYTES].add(slow)

    def _drip(self, dripping: set[_Slow]) -> None:
        for slow in list(dripping):
            byte = _HEAD[slow.sent_count : slow.sent_count + 1] or b"x"
            slow.sent_count += 1
            self._send(slow, byte)

    def _send(self, slow: _Slow, data: bytes) -> None:
        try:
            slow.socket.send(data)
        except BlockingIOError:
            pass  # The proxy does not read: so be it.
        except OSError:
            self._on_closed(slow)

    def _still_reads(self, slow: _Slow) -> bool:
        try:
            return bool(slow.socket.recv(1 << 16))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _on_closed(self, slow: _Slow) -> None:
        """The proxy has closed it."""
        if slow.socket.fileno() < 0:
            return
        self._close(slow)
        if slow.number >= 0:
            self.closed_by_proxy += 1
            self._come_again(slow)

    def _leave(self, slow: _Slow) -> None:
        if slow.socket.fileno() < 0:
            return
        self.unopened += not slow.is_open
        self._close(slow)

    def _close(self, slow: _Slow) -> None:
        del self._by_descriptor[slow.socket.fileno()]
        slow.socket.close()
        if slow.is_open and slow.number >= 0:
            self.standing -= 1
            self._dripping[slow.number % _TICKS_BETWEEN_BYTES].discard(slow)


def _main() -> None:
    websocket, http, source, standing, per_s, duration_s = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = int(standing) + _DESCRIPTORS_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if hard < 0 else min(soft, hard), hard))
    sockets = SlowSockets((Address.parse(websocket), Address.parse(http)), source)
    began_cpu_s = time.process_time()
    trio.run(sockets.run, int(standing), float(per_s), float(duration_s))
    counts = ("opened", "unopened", "closed_by_proxy", "standing_most", "standing_least")
    told: dict[str, float] = {name: getattr(sockets, name) for name in counts}
    told["cpu_share"] = (time.process_time() - began_cpu_s) / float(duration_s)
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    _main()
