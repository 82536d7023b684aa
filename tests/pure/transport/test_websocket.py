"""WebSockets carry messages of any size, in whatever pieces the bytes arrive."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from geolog.transport.websocket import open_websocket, serve_websocket
from sim.fakes.memory_transport import MemoryNetwork

SERVER = Address("server", 7000)
MESSAGE_BYTES_MAX = 1 << 20


def any_of(offered: Sequence[str]) -> str:
    return offered[0]


async def echo(socket: MessageSocket, target: str) -> None:
    del target
    try:
        while True:
            await socket.send(await socket.receive())
    except SocketClosedError:
        pass


async def serve(listener: Listener, nursery: trio.Nursery) -> None:
    while True:
        nursery.start_soon(serve_one, await listener.accept())


async def serve_one(stream: ByteStream) -> None:
    await serve_websocket(stream, any_of, echo, refusal="", message_bytes_max=MESSAGE_BYTES_MAX)


@pytest.mark.parametrize("receive_bytes_max", [1 << 30, 100_000, 1000])
async def test_messages_of_all_sizes_arrive_whole(
    autojump_clock: MockClock, receive_bytes_max: int
) -> None:
    network = MemoryNetwork(receive_bytes_max=lambda _: receive_bytes_max)
    sizes_bytes = [0, 1, 5000, 300_000, 10, MESSAGE_BYTES_MAX, 1, 70_000, 4096]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, await network.transport("server").listen(SERVER), nursery)
        async with open_websocket(
            network.transport("client"),
            SERVER,
            "/",
            subprotocols=("echo",),
            message_bytes_max=MESSAGE_BYTES_MAX,
        ) as socket:
            for size_bytes in sizes_bytes:
                message = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)
                await socket.send(message)
                assert await socket.receive() == message
        nursery.cancel_scope.cancel()


async def test_a_server_that_does_not_speak_http_is_reported(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    async def greet(listener: Listener) -> None:
        stream = await listener.accept()
        await stream.send([b"220 mail ready\r\n\r\n"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(greet, await network.transport("server").listen(SERVER))
        with pytest.raises(ConnectionFailedError, match="server:7000 does not speak HTTP"):
            async with open_websocket(
                network.transport("client"),
                SERVER,
                "/",
                subprotocols=("echo",),
                message_bytes_max=MESSAGE_BYTES_MAX,
            ):
                pass
