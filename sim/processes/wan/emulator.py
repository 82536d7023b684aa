"""The WAN emulator: accepts connections, finds the link of each, and carries it across.

A client that speaks the gateway protocol (`geolog.transport.gateway`) sends its region and the
address it wants; it gets an answer when the server is reached, one round trip later. Servers
that do not speak it, e.g. ZooKeeper's, connect to a port that leads from a region to a server.
"""

import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from geolog.transport.gateway import (
    DIRECT,
    LINE_BYTES_MAX,
    OPEN,
    REFUSED,
    UNKNOWN,
    parse_dial_line,
)
from geolog.transport.seam import Address, AddressInUseError
from sim.processes.wan.conditions import Conditions, Direction, LinkChange
from sim.processes.wan.connection import Connection, close_socket
from sim.processes.wan.election import rewritten
from sim.processes.wan.link import Lane, Link
from sim.processes.wan.pump import Pump
from sim.processes.wan.setup import Forward, WanSetup
from sim.processes.wan.sockets import accept, connect, listen_on, receive, wait_gone
from topology.errors import InvalidArgumentError
from topology.nearest import nearest

CONNECTIONS_MAX = 4096
"""Further connections wait to be accepted."""

LINE_S_MAX = 10.0
"""Time limit for the first line of a new connection."""

_FORWARD_RETRY_S, _FORWARD_TRIES_MAX = 0.05, 20
"""A forwarded port has already accepted, so give a server that is starting a little time."""


@attrs.frozen(kw_only=True)
class LinkStatus:
    """Current state of one direction of a link."""

    here: str
    there: str
    conditions: Conditions
    connections_count: int
    held_bytes: int
    """In flight, or not yet accepted by the receiver."""
    carried_bytes: int
    """Since the emulator started."""


class Emulator:
    """All links of one cluster. Opened by `open_emulator`."""

    def __init__(self, setup: WanSetup, rng: random.Random) -> None:
        self.setup = setup
        self.wan = setup.wan
        self._links = {
            direction: Link(conditions, rng)
            for direction, conditions in setup.wan.directions.items()
        }
        self._open: dict[Direction, set[Connection]] = {each: set() for each in self._links}
        self._pump = Pump()
        self._places = {Address.parse(where): region for where, region in setup.places.items()}
        self._room = trio.Semaphore(CONNECTIONS_MAX)
        self._changed = trio.Event()

    def change(self, here: str, there: str, change: LinkChange, *, is_one_way: bool) -> None:
        """Change links now. On NotFoundError or InvalidArgumentError, nothing has changed."""
        before = self.wan
        self.wan = before.changed(here, there, change, is_one_way=is_one_way)
        for direction, conditions in self.wan.directions.items():
            self._links[direction].conditions = conditions
            if before.directions[direction].is_cut and not conditions.is_cut:
                self._heal(direction)
        self._changed.set()
        self._changed = trio.Event()

    def status(self) -> list[LinkStatus]:
        """Each direction of each link."""
        return [
            LinkStatus(
                here=direction[0],
                there=direction[1],
                conditions=link.conditions,
                connections_count=sum(1 for _ in self._lanes(direction)),
                held_bytes=sum(lane.held_bytes for lane in self._lanes(direction)),
                carried_bytes=link.carried_bytes,
            )
            for direction, link in self._links.items()
        ]

    async def run(self, listeners: "list[Listening]") -> None:
        """Serve all listeners forever."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump.run)
                for each in listeners:
                    nursery.start_soon(self._serve, each)
        finally:
            for each in listeners:
                close_socket(each.listener)

    def listen(self) -> "list[Listening]":
        """Listen on all ports. AddressInUseError."""
        wanted: list[tuple[str, Callable[[socket.socket], Awaitable[None]]]] = [
            (self.setup.gateway, self._answer)
        ]
        wanted += [(each.listen, partial(self._forward, each)) for each in self.setup.forwards]
        wanted += [(where, _send_back) for where in self.setup.probes.values()]
        taken: list[Listening] = []
        try:
            for where, serve in wanted:
                taken.append(Listening(listen_on(Address.parse(where)), serve))
        except AddressInUseError:
            for each in taken:
                each.listener.close()
            raise
        return taken

    async def _serve(self, listening: "Listening") -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await self._room.acquire()
                accepted = await accept(listening.listener)
                nursery.start_soon(self._serve_one, listening.serve, accepted)

    async def _serve_one(
        self, serve: Callable[[socket.socket], Awaitable[None]], near: socket.socket
    ) -> None:
        try:
            # An OSError means that the client is gone; there is nobody to tell.
            with suppress(OSError):
                await serve(near)
        finally:
            close_socket(near)
            self._room.release()

    async def _answer(self, near: socket.socket) -> None:
        """Handle one connection to the gateway."""
        with trio.move_on_after(LINE_S_MAX) as scope:
            line = await _line(near)
        if scope.cancelled_caught:
            return
        try:
            here, address = parse_dial_line(line)
        except InvalidArgumentError as error:
            _say(near, f"{REFUSED} {error}")
            return
        if here not in self.wan.regions:
            _say(near, f"{UNKNOWN} {_unknown_region(here, self.wan.regions)}")
            return
        there = self._there(here, address)
        if there is None:
            _say(near, DIRECT)
            return
        direction = (here, there)
        if await self._travel(near, direction):
            far, reason = await _try_connect(address, tries=1)
            if far is None:
                if await self._travel(near, _back(direction)):
                    _say(near, f"{REFUSED} {reason}")
                return
            try:
                if not await self._travel(near, _back(direction)):
                    return
                _say(near, OPEN)
                await self._carry(near, far, direction, b"")
            finally:
                close_socket(far)

    async def _forward(self, forward: Forward, near: socket.socket) -> None:
        """Carry a connection of a server that does not speak the gateway protocol."""
        first: bytes | None = b""
        if forward.answer_at is not None:
            with trio.move_on_after(LINE_S_MAX):
                first = await _election_message(near, forward.answer_at)
        direction = (forward.here, forward.there)
        if first is not None and await self._travel(near, direction):
            address = Address.parse(forward.to)
            far, _ = await _try_connect(address, tries=_FORWARD_TRIES_MAX)
            if far is not None:
                await self._carry(near, far, direction, first)

    async def _carry(
        self, near: socket.socket, far: socket.socket, direction: Direction, first: bytes
    ) -> None:
        there, back = self._links[direction], self._links[_back(direction)]
        connection = Connection(near, far, there, back, self._pump)
        self._open[direction].add(connection)
        try:
            if first:
                connection.there.put(first, trio.current_time())
            await connection.run()
        finally:
            self._open[direction].discard(connection)

    async def _travel(self, near: socket.socket, direction: Direction) -> bool:
        """Wait for a first packet to cross; False if the client left during a cut.

        Without a cut, the packet arrives even if its sender has gone: its bytes still count.
        ZooKeeper servers send their identity, close, and are called back.
        """
        link = self._links[direction]
        while True:
            if link.conditions.is_cut and not await self._wait_healed(near, link):
                return False
            await trio.sleep_until(link.carry(0, trio.current_time()))
            if not link.conditions.is_cut:
                return True

    async def _wait_healed(self, near: socket.socket, link: Link) -> bool:
        """Wait until a link is healed; False if the client has gone."""
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await wait_gone(near)
                nursery.cancel_scope.cancel(reason="the client is gone")

            nursery.start_soon(give_up)
            while link.conditions.is_cut:
                await self._changed.wait()
            nursery.cancel_scope.cancel(reason="the link is healed")
        return not link.conditions.is_cut

    def _there(self, here: str, address: Address) -> str | None:
        """The region of a server, unless it is `here`."""
        there = self._places.get(address)
        return None if there == here else there

    def _heal(self, direction: Direction) -> None:
        now_s = trio.current_time()
        for connection in self._open[direction]:
            connection.there.heal(now_s)
        for connection in self._open[_back(direction)]:
            connection.back.heal(now_s)

    def _lanes(self, direction: Direction) -> Iterator[Lane]:
        yield from (each.there.lane for each in self._open[direction])
        yield from (each.back.lane for each in self._open[_back(direction)])


def _unknown_region(here: str, known: Sequence[str]) -> str:
    best = nearest(here, known)
    hint = "" if best is None else f"; did you mean {best!r}?"
    return f"region {here!r} (--region); the regions are {', '.join(known)}{hint}"


@attrs.frozen
class Listening:
    """A port, and the function that serves its connections."""

    listener: socket.socket
    serve: Callable[[socket.socket], Awaitable[None]]


@asynccontextmanager
async def open_emulator(setup: WanSetup, rng: random.Random) -> AsyncIterator[Emulator]:
    """Carry connections for the duration of the block; all ports listen before it begins."""
    emulator = Emulator(setup, rng)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(emulator.run, emulator.listen())
        yield emulator
        nursery.cancel_scope.cancel(reason="the emulator ends")


async def _send_back(near: socket.socket) -> None:
    """Echo: the far end of a probe."""
    while said := await receive(near, LINE_BYTES_MAX):
        near.send(said)


async def _try_connect(address: Address, tries: int) -> tuple[socket.socket | None, str]:
    reason = ""
    for _ in range(tries):
        try:
            return await connect(address), ""
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if tries > 1:
            await trio.sleep(_FORWARD_RETRY_S)
    return None, reason


async def _line(near: socket.socket) -> bytes:
    """The first line. A client sends no more until it has an answer."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        said = await receive(near, LINE_BYTES_MAX)
        if not said:
            break
        line += said
    return line


async def _election_message(near: socket.socket, answer_at: str) -> bytes | None:
    """First message of a ZooKeeper server, its address replaced; None if it ends early."""
    message = b""
    while (whole := rewritten(message, answer_at)) is None:
        said = await receive(near, LINE_BYTES_MAX)
        if not said:
            return None
        message += said
    return whole


def _say(near: socket.socket, line: str) -> None:
    near.send(f"{line}\n".encode())


def _back(direction: Direction) -> Direction:
    return direction[1], direction[0]
