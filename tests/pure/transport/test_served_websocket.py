"""The server's side of a WebSocket: bounded by bytes and time, whatever a client sends."""

import math
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

from geolog.transport import served_websocket
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from geolog.transport.served_websocket import FAREWELL_S, GRACE_S, MESSAGE_S, TINY_AT_ONCE
from geolog.transport.unread_bytes import UnreadBytes
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
    async def client(self, host: str = "client") -> AsyncIterator[RawClient]:
        """A client that has shaken hands."""
        client = RawClient(await self.network.transport(host).connect(SERVER))
        try:
            assert isinstance(await client.connect(), AcceptConnection)
            yield client
        finally:
            client.stream.close()


@asynccontextmanager
async def open_site(
    session: Session, *, unread_bytes_max: int = 1 << 20, client_share: float = 1.0
) -> AsyncIterator[Site]:
    """Serve each connection with this session."""
    site = Site(MemoryNetwork(), UnreadBytes(unread_bytes_max, client_share))

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
    assert 10_000 <= held_bytes <= 12_000


async def test_a_client_is_held_back_while_its_messages_are_not_taken(
    autojump_clock: MockClock,
) -> None:
    async with open_site(sleep, unread_bytes_max=1 << 30) as site, site.client() as client:
        with trio.move_on_after(10) as sending:
            for _ in range(100):
                await client.send(BytesMessage(data=bytes(100_000)))
        held_bytes = site.unread.bytes

    assert sending.cancelled_caught
    assert 256 << 10 <= held_bytes <= (512 << 10) + 200_000
    assert site.unread.bytes == 0


async def test_tiny_messages_fill_the_queue_as_much_as_they_take(
    autojump_clock: MockClock,
) -> None:
    frame = b"\x81\x81" + bytes(4) + b"x"
    async with open_site(sleep, unread_bytes_max=1 << 30) as site, site.client() as client:
        with trio.move_on_after(10) as sending:
            for _ in range(20):
                await client.stream.send([frame * 50_000])
        held_bytes = site.unread.bytes

    assert sending.cancelled_caught
    assert held_bytes <= 600_000
    assert site.unread.bytes == 0


async def test_the_limit_of_a_message_is_of_bytes_and_not_of_characters(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_site(echo, unread_bytes_max=1 << 24) as site,
        site.client() as client,
    ):
        await client.send(TextMessage(data="\N{GRINNING FACE}" * (MESSAGE_BYTES_MAX // 4)))
        whole = await client.receive()
        while isinstance(whole, TextMessage) and not whole.message_finished:
            whole = await client.receive()
        async with trio.open_nursery() as nursery:
            event = TextMessage(data="\N{GRINNING FACE}" * (MESSAGE_BYTES_MAX // 4 + 1))
            nursery.start_soon(send_bytes, client, client.protocol.send(event))
            closed = await client.receive()

    assert isinstance(whole, TextMessage)
    assert isinstance(closed, CloseConnection)
    assert int(closed.code) == 1009


async def test_others_have_turns_while_one_client_sends_tiny_frames_without_end(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_websocket, "TINY_AT_ONCE", math.inf)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    frames_count = 20_000
    async with (
        open_site(echo) as site,
        site.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(count_turns)
        await client.stream.send([(b"\x8a\x80" + bytes(4)) * frames_count])
        await client.send(TextMessage(data="last"))
        began = turns
        assert await client.receive() == TextMessage(data="last")
        passed = turns - began
        nursery.cancel_scope.cancel()

    assert passed >= frames_count / 64


@pytest.mark.parametrize(
    "frame",
    [
        b"\x8a\x80" + bytes(4),  # A pong that nobody has asked for.
        b"\x89\x80" + bytes(4),
        b"\x81\x80" + bytes(4),
        b"\x01\x80" + bytes(4) + b"\x80\x80" + bytes(4),  # A message in two empty parts.
        b"\x01\x81" + bytes(4) + b"x\x80\x80" + bytes(4),
    ],
    ids=["pong", "ping", "empty", "empty parts", "tiny parts"],
)
async def test_too_many_frames_with_next_to_nothing_end_the_connection(
    autojump_clock: MockClock, frame: bytes
) -> None:
    async with (
        open_site(take) as site,
        site.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send_bytes, client, frame * (TINY_AT_ONCE + 50))
        closed = await client.receive()
        while isinstance(closed, Pong):
            closed = await client.receive()

    assert isinstance(closed, CloseConnection)
    assert int(closed.code) == 1008
    assert site.unread.bytes == 0


async def take(socket: MessageSocket, target: str) -> None:
    """Take all, and say nothing."""
    with suppress(SocketClosedError):
        while True:
            await socket.receive()


async def test_a_client_may_ping_many_times_a_second(autojump_clock: MockClock) -> None:
    async with open_site(sleep) as site, site.client() as client:
        for number in range(1000):
            await client.send(Ping(payload=b"%d" % number))
            assert await client.receive() == Pong(payload=b"%d" % number)
            await trio.sleep(0.02)


@pytest.mark.parametrize(("pace_bytes", "limit_s"), [(1, GRACE_S), (15_000, MESSAGE_S)])
async def test_a_message_that_trickles_in_is_ended_and_told(
    autojump_clock: MockClock, pace_bytes: int, limit_s: float
) -> None:
    async with open_site(echo) as site, site.client() as client:
        began_s = trio.current_time()
        with trio.move_on_after(10 * MESSAGE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, client, pace_bytes)
                told, closed = await client.receive(), await client.receive()
                nursery.cancel_scope.cancel()
        ended_s = trio.current_time() - began_s

    assert isinstance(told, TextMessage)
    assert told.data.startswith("408: a message has ")
    assert isinstance(closed, CloseConnection)
    assert (int(closed.code), closed.reason) == (4408, "so long")
    assert limit_s <= ended_s < limit_s + 2
    assert site.unread.bytes == 0


async def trickle(client: RawClient, pace_bytes: int) -> None:
    """Send so many bytes a second of a message that never ends."""
    while True:
        await client.send(TextMessage(data="x" * pace_bytes, message_finished=False))
        await trio.sleep(1)


@pytest.mark.parametrize(("pace_bytes", "stalls_s"), [(20_000, 20), (5_000, 10), (3_000, 0)])
async def test_a_slow_link_or_one_that_stands_still_for_a_while_loses_no_message(
    autojump_clock: MockClock, pace_bytes: int, stalls_s: float
) -> None:
    async with open_site(echo) as site, site.client() as client:
        for number in range(35):
            await client.send(TextMessage(data="x" * pace_bytes, message_finished=False))
            await trio.sleep(1 + (stalls_s if number == 20 else 0))
        await client.send(TextMessage(data="x"))
        with trio.fail_after(1):
            received = 0
            while received < 35 * pace_bytes + 1:
                message = await client.receive()
                assert isinstance(message, TextMessage)
                received += len(message.data)

    assert received == 35 * pace_bytes + 1


async def test_the_time_that_a_client_is_held_back_does_not_count_against_its_message(
    autojump_clock: MockClock,
) -> None:
    async def take_late(socket: MessageSocket, target: str) -> None:
        await trio.sleep(3 * MESSAGE_S)
        await echo(socket, target)

    async with open_site(take_late) as site, site.client() as client:
        for _ in range(3):
            await client.send(BytesMessage(data=bytes(90_000)))
        await client.send(BytesMessage(data=b"slow", message_finished=False))
        await trio.sleep(3 * MESSAGE_S)
        await client.send(BytesMessage(data=b"ly"))
        with trio.fail_after(1):
            while await client.receive() != BytesMessage(data=bytearray(b"slowly")):
                pass


@pytest.mark.parametrize("attackers_count", [1, 2, 5], ids=lambda one: f"{one} hosts")
@pytest.mark.parametrize("part_bytes", [30_000, 90_000])
async def test_messages_that_stop_in_the_middle_hold_up_nobody_else(
    autojump_clock: MockClock, attackers_count: int, part_bytes: int
) -> None:
    async def begin_a_message(site: Site, host: str) -> None:
        async with site.client(host) as client:
            await client.send(BytesMessage(data=bytes(part_bytes), message_finished=False))
            with suppress(ConnectionFailedError):
                await client.receive()

    async with (
        open_site(echo, unread_bytes_max=1_000_000, client_share=0.5) as site,
        trio.open_nursery() as nursery,
        site.client("honest") as honest,
    ):
        for number in range(60):
            nursery.start_soon(begin_a_message, site, f"attacker {number % attackers_count}")
        await trio.sleep(1)
        held_bytes = site.unread.bytes
        with trio.fail_after(1):
            for _ in range(5):  # In two pieces, as a larger one comes.
                await honest.send(TextMessage(data="y" * 40_000, message_finished=False))
                await trio.sleep(0.01)
                await honest.send(Ping(payload=b"alive?"))
                assert await honest.receive() == Pong(payload=b"alive?")
                await honest.send(TextMessage(data="whole"))
                assert await received_bytes(honest) == 40_005
        nursery.cancel_scope.cancel()

    assert held_bytes <= min(0.5 * attackers_count, 1) * 1_250_000 + part_bytes


async def received_bytes(client: RawClient) -> int:
    """The length of the next message."""
    count = 0
    while True:
        event = await client.receive()
        assert isinstance(event, TextMessage), event
        count += len(event.data)
        if event.message_finished:
            return count


async def test_messages_that_no_session_takes_hold_up_no_pings_of_others(
    autojump_clock: MockClock,
) -> None:
    async def hold(site: Site) -> None:
        async with site.client("attacker") as client:
            await client.send(BytesMessage(data=bytes(9_000)))
            await trio.sleep_forever()

    async with (
        open_site(sleep, unread_bytes_max=1_000_000) as site,
        trio.open_nursery() as nursery,
        site.client("honest") as honest,
    ):
        for _ in range(120):
            nursery.start_soon(hold, site)
        await trio.sleep(1)
        assert site.unread.bytes >= 1_000_000
        await honest.send(Ping(payload=b"alive?"))
        with trio.fail_after(1):
            assert await honest.receive() == Pong(payload=b"alive?")
        nursery.cancel_scope.cancel()


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
    assert held_bytes <= 135_000
    assert codes.count("429:") >= 6
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
        with trio.fail_after(1.5 * HANDSHAKE_S + 1):
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
