"""The server's side of a WebSocket: bounded by bytes and time, whatever a client sends."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
import wsproto
from trio.testing import MockClock
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

from geolog.transport.message_socket import MessageSocket, SocketClosedError, UnreadBytes
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from geolog.transport.served_websocket import FAREWELL_S, MESSAGE_S
from geolog.transport.websocket import HANDSHAKE_S, serve_websocket
from sim.fakes.memory_transport import MemoryNetwork
from topology.errors import GeologError

SERVER = Address("server", 7000)
MESSAGE_BYTES_MAX = 1 << 20

Session = Callable[[MessageSocket, str], Awaitable[None]]


@attrs.define
class RawClient:
    """A client that may send any event, or bytes, in any order."""

    stream: ByteStream
    protocol: wsproto.WSConnection = attrs.field(
        factory=lambda: wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    )
    events: list[Event] = attrs.field(factory=list)
    is_over: bool = False

    async def send(self, event: Event) -> None:
        """Send one event."""
        await self.stream.send([self.protocol.send(event)])

    async def receive(self) -> Event | None:
        """The next event; None at the end."""
        buffer = bytearray(1 << 16)
        while not self.events:
            count = await self.stream.receive_into(buffer)
            if not count:
                return None
            self.protocol.receive_data(bytes(buffer[:count]))
            self.events += self.protocol.events()
        return self.events.pop(0)

    async def connect(self, *subprotocols: str) -> Event | None:
        """Shake hands; what the server answers."""
        await self.send(Request(host="server", target="/x?y=1", subprotocols=[*subprotocols]))
        return await self.receive()


@attrs.define
class Site:
    """A server, and what its sessions say."""

    network: MemoryNetwork
    unread: UnreadBytes

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        """A client that has shaken hands."""
        client = RawClient(await self.network.transport("client").connect(SERVER))
        try:
            assert isinstance(await client.connect(), AcceptConnection)
            yield client
        finally:
            client.stream.close()


@asynccontextmanager
async def open_site(
    session: Session, *, unread_bytes_max: int = 1 << 20
) -> AsyncIterator[Site]:
    """Serve each connection with this session."""
    site = Site(MemoryNetwork(), UnreadBytes(unread_bytes_max))

    async def serve(listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(serve_one, await listener.accept())

    async def serve_one(stream: ByteStream) -> None:
        await serve_websocket(
            stream,
            choose,
            session,
            refusal="this server has one\n",
            message_bytes_max=MESSAGE_BYTES_MAX,
            unread=site.unread,
        )
        stream.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            serve, await site.network.transport("server").listen(SERVER), nursery
        )
        yield site
        nursery.cancel_scope.cancel()


def choose(offered: Sequence[str]) -> str | None:
    return next((one for one in offered if one == "one"), None) if offered else "one"


async def echo(socket: MessageSocket, target: str) -> None:
    """Send each message back, or why there is none."""
    try:
        while True:
            await socket.send(await socket.receive())
    except SocketClosedError:
        pass
    except GeologError as error:
        await socket.send(f"{error.code}: {error}")
        await socket.close(4000 + error.code, "so long")


async def sleep(socket: MessageSocket, target: str) -> None:
    """Take nothing."""
    await trio.sleep_forever()


async def test_pieces_with_a_ping_between_them_are_one_message(
    autojump_clock: MockClock,
) -> None:
    async with open_site(echo) as site, site.client() as client:
        await client.send(TextMessage(data="a", message_finished=False))
        await client.send(Ping(payload=b"p"))
        await client.send(TextMessage(data="b", message_finished=False))
        await client.send(TextMessage(data="ü"))
        events = [await client.receive(), await client.receive()]
        await client.send(BytesMessage(data=b"\x00" * 10, message_finished=False))
        await client.send(BytesMessage(data=b"\xff"))
        last = await client.receive()

    assert events == [Pong(payload=b"p"), TextMessage(data="abü")]
    assert last == BytesMessage(data=bytearray(10 * b"\x00" + b"\xff"))
    assert site.unread.bytes == 0


async def test_messages_that_came_before_a_farewell_are_still_taken(
    autojump_clock: MockClock,
) -> None:
    taken: list[str | bytes] = []
    closed: list[SocketClosedError] = []

    async def take_late(socket: MessageSocket, target: str) -> None:
        await trio.sleep(5)
        try:
            while True:
                taken.append(await socket.receive())
        except SocketClosedError as error:
            closed.append(error)

    async with open_site(take_late) as site, site.client() as client:
        for number in range(20):
            await client.send(TextMessage(data=str(number)))
        await client.send(CloseConnection(code=1000, reason="done"))
        farewell = await client.receive()
        await trio.sleep(6)

    assert taken == [str(number) for number in range(20)]
    assert [(one.close_code, one.reason) for one in closed] == [(1000, "done")]
    assert isinstance(farewell, CloseConnection)
    assert site.unread.bytes == 0


async def test_pings_are_answered_while_the_session_takes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_site(sleep) as site, site.client() as client:
        for _ in range(10):
            await client.send(TextMessage(data="x" * 1000))
        await client.send(Ping(payload=b"alive?"))
        with trio.fail_after(1):
            answer = await client.receive()
        held_bytes = site.unread.bytes

    assert answer == Pong(payload=b"alive?")
    assert held_bytes == 10_000


async def test_a_client_is_held_back_while_its_messages_are_not_taken(
    autojump_clock: MockClock,
) -> None:
    async with open_site(sleep, unread_bytes_max=1 << 30) as site, site.client() as client:
        with trio.move_on_after(10) as sending:
            for _ in range(100):
                await client.send(BytesMessage(data=bytes(100_000)))
        held_bytes = site.unread.bytes

    assert sending.cancelled_caught
    assert 256 << 10 <= held_bytes <= (256 << 10) + 200_000
    assert site.unread.bytes == 0


async def test_a_message_that_trickles_in_is_ended_and_told(autojump_clock: MockClock) -> None:
    async with open_site(echo) as site, site.client() as client:
        began_s = trio.current_time()
        with trio.move_on_after(10 * MESSAGE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, client)
                told, closed = await client.receive(), await client.receive()
                nursery.cancel_scope.cancel()
        ended_s = trio.current_time() - began_s

    assert isinstance(told, TextMessage)
    assert told.data.startswith("408: a message has ")
    assert isinstance(closed, CloseConnection)
    assert (int(closed.code), closed.reason) == (4408, "so long")
    assert MESSAGE_S <= ended_s < MESSAGE_S + 2
    assert site.unread.bytes == 0


async def trickle(client: RawClient) -> None:
    """Send a byte a second of a message that never ends."""
    while True:
        await client.send(TextMessage(data="x", message_finished=False))
        await trio.sleep(1)


async def test_parts_of_messages_have_a_bound_together(autojump_clock: MockClock) -> None:
    told: list[Event | None] = []

    async def begin_a_message(site: Site) -> None:
        async with site.client() as client:
            for _ in range(5):
                await client.send(BytesMessage(data=bytes(10_000), message_finished=False))
                await trio.sleep(1)
            told.append(await client.receive())

    async with (
        open_site(echo, unread_bytes_max=100_000) as site,
        trio.open_nursery() as nursery,
        site.client() as honest,
    ):
        for _ in range(10):
            nursery.start_soon(begin_a_message, site)
        await trio.sleep(4)
        held_bytes = site.unread.bytes
        await honest.send(TextMessage(data="whole"))
        answer = await honest.receive()

    codes = [one.data[:4] for one in told if isinstance(one, TextMessage)]
    assert held_bytes <= 110_000
    assert codes.count("429:") >= 7
    assert answer == TextMessage(data="whole")
    assert site.unread.bytes == 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x81\xff\x00\x00\x00\x00\x00\x20\x00\x00" + bytes(4) + bytes(2 << 20), 1009),
        (b"\xff\xff\xff\xff", 1002),
        (b"\x81\x02ab", 1002),  # Not masked.
        (b"\x81\x82\x00\x00\x00\x00\xff\xff", 1007),  # Not UTF-8.
    ],
    ids=["too large", "noise", "not masked", "not UTF-8"],
)
async def test_what_is_no_message_ends_the_connection_with_its_code(
    autojump_clock: MockClock, sent: bytes, code: int
) -> None:
    async with (
        open_site(echo) as site,
        site.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send_bytes, client, sent)
        closed = await client.receive()

    assert isinstance(closed, CloseConnection)
    assert int(closed.code) == code
    assert site.unread.bytes == 0


async def send_bytes(client: RawClient, data: bytes) -> None:
    with suppress(ConnectionFailedError):  # The server may have heard enough.
        await client.stream.send([data])


async def test_a_client_that_offers_only_other_subprotocols_is_refused_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with open_site(echo) as site:
        client = RawClient(await site.network.transport("client").connect(SERVER))
        refused = await client.connect("two")
        reason = await client.receive()

    assert isinstance(refused, RejectConnection)
    assert refused.status_code == 400
    assert isinstance(reason, RejectData)
    assert bytes(reason.data) == b"this server has one\n"


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x00\x01\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost:", b""),
    ],
)
async def test_a_connection_without_a_handshake_ends(
    autojump_clock: MockClock, request_bytes: bytes, answer: bytes
) -> None:
    async with open_site(echo) as site:
        stream = await site.network.transport("client").connect(SERVER)
        await stream.send([request_bytes])
        told, buffer = b"", bytearray(4096)
        with trio.fail_after(HANDSHAKE_S + 1):
            while count := await stream.receive_into(buffer):
                told += buffer[:count]

    assert told.startswith(answer)
    assert bool(told) == bool(answer)


async def test_a_client_that_hears_no_farewell_is_left(autojump_clock: MockClock) -> None:
    async def leave(socket: MessageSocket, target: str) -> None:
        await socket.close(1012, "going away")

    async with open_site(leave) as site, site.client() as client:
        closed = await client.receive()
        with trio.fail_after(FAREWELL_S + 1):
            ended = await client.receive()

    assert isinstance(closed, CloseConnection)
    assert ended is None
