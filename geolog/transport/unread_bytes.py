"""Bytes of messages that a server's connections hold and no session has taken.

Theory of operation. Whole messages count, and what has come of others: their parts. There are
two bounds, one for all clients together and one for each. At a bound

- a connection that has whole messages waiting is not read. One that has none is read on, a
  little at a time, so that its pings are answered and its next message gets through;
- parts give way. A message that has begun may never go on, and holds its room for nothing. So
  the longest one of the client that is over its share, or of the client whose parts hold most,
  is dropped, even if others have spoken last. Up to `SPARED_BYTES` of a message are kept,
  until the bound is passed by a quarter.

A client is an address, see `client_address`.
"""

import math
from collections.abc import Callable
from itertools import islice

UNREAD_BYTES_MAX = 64 << 20
"""The bound of a server that names none."""

SPARED_BYTES = 16 << 10
"""Parts of a message that are kept although a bound is reached."""

_WOKEN_AT_ONCE = 8
"""Connections that go on when there is room; the messages that they get wake the next ones."""


class _Bound:
    """A count of bytes, its bound, and the connections that wait for room."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        return self.bytes >= self.max_bytes

    @property
    def is_far_over(self) -> bool:
        return self.bytes >= self.max_bytes + self.max_bytes // 4

    def give_back(self, count: int) -> None:
        self.bytes -= count
        assert self.bytes >= 0, "more bytes were given back than taken"
        if self.waiting and not self.is_full:
            for call in list(islice(self.waiting, _WOKEN_AT_ONCE)):
                self.waiting.pop(call, None)
                call()


class _Client:
    """The unread bytes of one client, and its connections that hold parts."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self.name = name
        self.bound = _Bound(max_bytes)
        self.connections_count = 0
        self.parts_bytes = 0
        self.with_parts: dict[UnreadOfOne, None] = {}


class UnreadBytes:
    """The unread bytes of all connections of a server."""

    def __init__(self, max_bytes: int = UNREAD_BYTES_MAX, client_share: float = 1.0) -> None:
        self._bound = _Bound(max_bytes)
        self._client_max_bytes = math.ceil(max_bytes * client_share)
        self._clients: dict[str, _Client] = {}

    def __repr__(self) -> str:
        return f"UnreadBytes({self.bytes} of {self._bound.max_bytes})"

    @property
    def bytes(self) -> int:
        """Bytes that are unread now."""
        return self._bound.bytes

    def open(
        self, client: str, drop: Callable[[str], None], tell_room: Callable[[], None]
    ) -> "UnreadOfOne":
        """Count for a connection of this client, until it is closed.

        drop: called with the reason when the parts of its message must give way. tell_room:
        called when there is room again, see `UnreadOfOne.expect_room`.
        """
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = _Client(client, self._client_max_bytes)
        known.connections_count += 1
        return UnreadOfOne(self._bound, known, self._clients, drop, tell_room)


class UnreadOfOne:
    """The unread bytes of one connection."""

    def __init__(
        self,
        bound: _Bound,
        client: _Client,
        clients: dict[str, _Client],
        drop: Callable[[str], None],
        tell_room: Callable[[], None],
    ) -> None:
        self._bound = bound
        self._client = client
        self._clients = clients
        self._drop = drop
        self._tell_room = tell_room
        self._whole_bytes = 0
        self._is_closed = False
        self.parts_bytes = 0
        """Memory that the parts of the message that has begun take."""

    def __repr__(self) -> str:
        return f"UnreadOfOne({self._client.name}: {self._whole_bytes} + {self.parts_bytes})"

    @property
    def is_full(self) -> bool:
        """Whether one of the bounds is reached."""
        return self._bound.is_full or self._client.bound.is_full

    def expect_room(self) -> None:
        """Be told once there is room again. It may be too late, or for nothing, by then.

        Only for a connection that has whole messages waiting: what wakes the others is that
        these are taken.
        """
        full = self._bound if self._bound.is_full else self._client.bound
        full.waiting[self._tell_room] = None

    def take(self, count: int) -> None:
        """Note a whole message, or what else is held for a while."""
        self._whole_bytes += count
        self._bound.bytes += count
        self._client.bound.bytes += count

    def give_back(self, count: int) -> None:
        """Note that a session has taken a message, or that it was dropped."""
        self._whole_bytes -= count
        self._give_back(count)

    def take_part(self, count: int) -> None:
        """Note a part of a message that has begun; some such message may have to give way."""
        self._bound.bytes += count
        self._client.bound.bytes += count
        self._client.parts_bytes += count
        self._client.with_parts[self] = None
        self.parts_bytes += count
        if self._client.bound.is_full:
            self._make_room(self._client.bound, self._client)
        elif self._bound.is_full:
            self._make_room(self._bound, None)

    def give_back_parts(self) -> None:
        """Note that the message is whole, or dropped."""
        count, self.parts_bytes = self.parts_bytes, 0
        self._client.parts_bytes -= count
        self._client.with_parts.pop(self, None)
        self._give_back(count)

    def close(self) -> None:
        """Give all back: the connection is over."""
        if self._is_closed:
            return
        self._is_closed = True
        for bound in (self._bound, self._client.bound):
            bound.waiting.pop(self._tell_room, None)
        self.give_back_parts()
        self.give_back(self._whole_bytes)
        self._drop, self._tell_room = (
            _ignore_drop,
            _ignore,
        )  # They hold the connection: a cycle.
        self._client.connections_count -= 1
        if not self._client.connections_count:
            del self._clients[self._client.name]

    def _give_back(self, count: int) -> None:
        self._bound.give_back(count)
        self._client.bound.give_back(count)

    def _make_room(self, bound: _Bound, client: _Client | None) -> None:
        # Looks at all that have parts only if much has come since: it is dear.
        if self.parts_bytes <= SPARED_BYTES and not bound.is_far_over:
            return
        if client is None:
            client = max(self._clients.values(), key=lambda one: one.parts_bytes)
        longest = max(client.with_parts, key=lambda one: one.parts_bytes)
        whose = "this server" if client is not self._client else "a client"
        longest.give_way(f"{whose} holds {bound.bytes} bytes of unread messages already")

    def give_way(self, why: str) -> None:
        """Have the message that has begun dropped."""
        self._drop(why)
        assert not self.parts_bytes, "the parts of a message were not given back"


def _ignore() -> None:
    pass


def _ignore_drop(_why: str) -> None:
    pass
