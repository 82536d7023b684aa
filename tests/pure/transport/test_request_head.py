"""A request's head is passed on once it is whole, or is none, with all that came with it."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from geolog.transport.request_head import HEAD_BYTES_MAX, read_head, spread_s
from geolog.transport.seam import Address, ByteStream
from sim.fakes.memory_transport import MemoryNetwork

HEAD = b"GET /livez HTTP/1.1\r\nhost: proxy\r\n\r\n"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    transport = MemoryNetwork().transport("a")
    listener = await transport.listen(Address("a", 1))
    near = await transport.connect(listener.address)
    yield near, await listener.accept()
    near.close()


async def test_a_head_may_come_byte_by_byte_and_ends_at_its_empty_line() -> None:
    async with connected() as (client, server):
        for at in range(len(HEAD)):
            await client.send([HEAD[at : at + 1]])
        await client.send([b"later"])

        assert (await read_head(server)).startswith(HEAD)


@pytest.mark.parametrize(
    "whole",
    [
        HEAD + b"with the body",
        b"GET / HTTP/1.1\nhost: a\n\n",
        b"\x16\x03\x01 a TLS client's hello",
        b"\r\n" + HEAD[:10],
    ],
)
async def test_what_is_whole_or_no_head_is_passed_on_as_it_came(whole: bytes) -> None:
    async with connected() as (client, server):
        await client.send([whole])

        assert await read_head(server) == whole


async def test_a_client_that_leaves_in_the_middle_has_no_head() -> None:
    async with connected() as (client, server):
        await client.send([HEAD[:-1]])
        client.close()

        assert await read_head(server) == b""


async def test_a_head_that_is_too_long_is_passed_on_without_its_end() -> None:
    whole = HEAD[:-2] + b"filler: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n"
    async with connected() as (client, server):
        await client.send([whole])

        assert await read_head(server) == whole[: HEAD_BYTES_MAX + 1]


def test_connections_that_came_at_once_are_not_closed_at_once() -> None:
    due_s = [spread_s(10.0, f"127.0.0.1:{port}") for port in range(40_000, 42_000)]
    in_half_seconds = Counter(int(2 * one) for one in due_s)

    assert min(due_s) >= 10
    assert max(due_s) <= 15
    assert len(in_half_seconds) == 10
    assert max(in_half_seconds.values()) <= 300
