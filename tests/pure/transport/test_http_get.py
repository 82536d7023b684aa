"""GET of a document from a server's HTTP port."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.http_get import http_get
from geolog.transport.seam import Address, ConnectionFailedError
from sim.fakes.memory_transport import MemoryNetwork
from topology.errors import UnavailableError

SERVER = Address("server", 80)


async def get_from(answer: bytes) -> object:
    """Get from a server that answers with these bytes, and closes the connection."""
    network = MemoryNetwork()
    listener = await network.transport("server").listen(SERVER)

    async def serve() -> None:
        stream = await listener.accept()
        await stream.receive_into(bytearray(1000))
        with suppress(ConnectionFailedError):  # The client leaves when it has had enough.
            await stream.send([answer])
        stream.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        return await http_get(network.transport("client"), SERVER, "/v1/latency")


async def test_a_document_comes_as_it_is(autojump_clock: MockClock) -> None:
    assert await get_from(b'HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{"a": 1}') == {"a": 1}
    assert await get_from(b"HTTP/1.1 200 OK\r\n\r\n[2]") == [2]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answers with status 404"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{]}", "is no document"),
        (b"SSH-2.0\r\n\r\n", "is no document"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "is no document"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (2 << 20), "is too large"),
    ],
)
async def test_anything_else_is_an_error(
    autojump_clock: MockClock, answer: bytes, message: str
) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(UnavailableError, match=message)):
        await get_from(answer)
