"""Whole messages over the memory network, as sessions with proxies use them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geolog.background import open_background
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address, ConnectionFailedError
from sim.fakes.memory_messages import MemoryMessages, MemoryMessageSocket
from sim.fakes.memory_transport import MemoryNetwork

_SERVER = Address("server", 7000)
_MESSAGE_BYTES_MAX = 1000

Handle = Callable[[MessageSocket, str], Awaitable[None]]


def _choose_last(offered: Sequence[str]) -> str | None:
    return offered[-1] if offered else None


@asynccontextmanager
async def _connected(
    handle: Handle, *, subprotocols: Sequence[str] = ("one", "two")
) -> AsyncIterator[MemoryMessageSocket]:
    """A client's socket to a server that serves one connection."""
    network = MemoryNetwork(latency_s=lambda _sender, _receiver: 0.01)
    near = MemoryMessages(network.transport("client"))
    far = MemoryMessages(network.transport("server"))
    listener = network.listen(_SERVER)

    async def serve() -> None:
        await far.serve(
            await listener.accept(),
            _choose_last,
            handle,
            refusal="offer something",
            message_bytes_max=_MESSAGE_BYTES_MAX,
        )

    async with open_background() as nursery:
        nursery.start_soon(serve)
        async with near.open(
            _SERVER, "/here", subprotocols=subprotocols, message_bytes_max=_MESSAGE_BYTES_MAX
        ) as socket:
            yield socket


async def _echo(socket: MessageSocket, _target: str) -> None:
    try:
        while True:
            await socket.send(await socket.receive())
    except SocketClosedError:
        return


async def test_text_and_bytes_arrive_whole_and_in_order(autojump_clock: MockClock) -> None:
    async with _connected(_echo) as socket:
        for message in ("text", b"", b"bytes"):
            await socket.send(message)
        assert [await socket.receive() for _ in range(3)] == ["text", b"", b"bytes"]


async def test_the_server_chooses_the_subprotocol_and_hears_the_target(
    autojump_clock: MockClock,
) -> None:
    async def tell(socket: MessageSocket, target: str) -> None:
        await socket.send(f"{target} {socket.subprotocol}")

    async with _connected(tell) as socket:
        assert socket.subprotocol == "two"
        assert await socket.receive() == "/here two"


async def test_a_client_without_a_known_subprotocol_is_refused(
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(ConnectionFailedError, match="offer something"):
        async with _connected(_echo, subprotocols=()):
            pass


async def test_the_other_side_hears_why_a_socket_was_closed(autojump_clock: MockClock) -> None:
    async def leave(socket: MessageSocket, _target: str) -> None:
        await socket.close(4503, "drained")

    async with _connected(leave) as socket:
        with pytest.raises(SocketClosedError) as caught:
            await socket.receive()
    assert (caught.value.close_code, caught.value.reason) == (4503, "drained")


async def test_a_message_over_the_limit_closes_the_socket(autojump_clock: MockClock) -> None:
    async with _connected(_echo) as socket:
        await socket.send(bytes(_MESSAGE_BYTES_MAX + 1))
        with pytest.raises(SocketClosedError) as caught:
            await socket.receive()
    assert caught.value.close_code == 1009


async def test_a_ping_is_answered_while_both_sides_receive(autojump_clock: MockClock) -> None:
    async with _connected(_echo) as socket, trio.open_nursery() as nursery:

        async def receive() -> None:
            await socket.receive()

        nursery.start_soon(receive)
        await socket.ping()
        await socket.send("done")


async def test_a_ping_fails_when_the_connection_is_over(autojump_clock: MockClock) -> None:
    async def leave(_socket: MessageSocket, _target: str) -> None:
        return

    async with _connected(leave) as socket, trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(SocketClosedError):
                await socket.receive()

        nursery.start_soon(receive)
        with pytest.raises(SocketClosedError):
            await socket.ping()
