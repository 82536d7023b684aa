"""Faults of the in-memory network: delay, cut, mend, reset, kill."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from sim.fakes.memory_transport import PIPE_BYTES_MAX, MemoryNetwork


@asynccontextmanager
async def linked(network: MemoryNetwork) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    listener = await network.transport("b").listen(Address("b", 0))
    near = await network.transport("a").connect(listener.address)
    far = await listener.accept()
    yield near, far


async def receive(stream: ByteStream) -> bytes:
    buffer = bytearray(100)
    count = await stream.receive_into(buffer)
    return bytes(buffer[:count])


async def receive_for_ever(stream: ByteStream, received: bytearray) -> None:
    while True:
        received += await receive(stream)


async def test_a_piece_arrives_after_the_latency(autojump_clock: MockClock) -> None:
    async with linked(MemoryNetwork(lambda _one, _other: 0.04)) as (near, far):
        assert trio.current_time() == pytest.approx(0.08)
        await near.send([b"x"])

        assert await receive(far) == b"x"
        assert trio.current_time() == pytest.approx(0.12)


async def test_no_piece_overtakes_another(autojump_clock: MockClock) -> None:
    latencies_s = iter([0.0, 0.0, 0.5, 0.1, 0.1])
    async with linked(MemoryNetwork(lambda _one, _other: next(latencies_s))) as (near, far):
        await near.send([b"slow "])
        await near.send([b"fast"])
        near.close()

        assert await receive(far) == b"slow fast"
        assert await receive(far) == b""
        assert trio.current_time() == pytest.approx(0.5)


async def test_a_cut_holds_bytes_back_until_it_is_mended(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, far):
        network.cut("a", "b")
        await near.send([b"x"])
        with trio.move_on_after(60) as waited:
            await receive(far)
        assert waited.cancelled_caught
        network.mend("b", "a")

        assert await receive(far) == b"x"


async def test_connecting_through_a_cut_waits_for_its_end(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.transport("b").listen(Address("b", 7))
    network.cut("a", "b")

    with trio.move_on_after(60) as waited:
        await network.transport("a").connect(listener.address)
    assert waited.cancelled_caught
    network.mend("a", "b")
    await network.transport("a").connect(listener.address)


async def test_a_killed_host_resets_its_connections_and_listens_no_more(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, _far):
        network.kill("b")

        with pytest.raises(ConnectionFailedError, match="reset"):
            await receive(near)
        with pytest.raises(ConnectionFailedError, match="refused"):
            await network.transport("a").connect(Address("b", 40_000))
        await network.transport("b").listen(Address("b", 40_000))


async def test_news_of_a_death_does_not_pass_a_cut(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, _far):
        network.cut("a", "b")
        network.kill("b")
        with trio.move_on_after(60) as waited:
            await receive(near)
        assert waited.cancelled_caught
        network.mend("a", "b")

        with pytest.raises(ConnectionFailedError, match="reset"):
            await receive(near)


async def test_a_reset_breaks_one_link_only(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, far):
        network.reset("a", "c")
        await near.send([b"x"])
        assert await receive(far) == b"x"
        network.reset("a", "b")

        with pytest.raises(ConnectionFailedError):
            await near.send([b"y"])


async def test_a_cut_of_one_way_lets_the_other_through(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, far):
        network.cut_one_way("a", "b")
        await near.send([b"x"])
        await far.send([b"y"])

        assert await receive(near) == b"y"
        with trio.move_on_after(60) as waited:
            await receive(far)
        assert waited.cancelled_caught
        network.mend("a", "b")
        assert await receive(far) == b"x"


async def test_a_sender_that_hears_nothing_fills_its_pipe(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, far):
        network.cut_one_way("b", "a")
        assert near.send_nowait([bytes(PIPE_BYTES_MAX + 1)]) == PIPE_BYTES_MAX
        await receive(far)

        assert near.send_nowait([b"x"]) == 0
        network.mend("a", "b")
        assert near.send_nowait([b"x"]) == 1


async def test_a_host_without_power_is_silent_until_it_has_it_again(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    async with linked(network) as (near, _far):
        network.vanish("b")
        network.darken("b")
        with trio.move_on_after(60) as waited:
            await receive(near)
        assert waited.cancelled_caught
        network.lighten("b")

        with pytest.raises(ConnectionFailedError, match="reset"):
            await receive(near)


@pytest.mark.parametrize("kept_bytes", [0, 1, 4, 5, 9])
async def test_a_connection_breaks_at_any_byte(
    kept_bytes: int, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork(lambda _one, _other: 0.1)
    async with linked(network) as (near, far):
        await near.send([b"some "])
        await near.send([b"more"])
        [side] = network.streams_of("a")
        side.break_after(kept_bytes)

        received = bytearray()
        with pytest.raises(ConnectionFailedError, match="reset"):
            await receive_for_ever(far, received)
        assert received == b"some more"[:kept_bytes]
        with pytest.raises(ConnectionFailedError, match="reset"):
            await near.send([b"x"])


async def test_a_slow_host_receives_little_and_late(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(receive_delay_s=lambda _host: 1.0, receive_bytes_max=lambda _: 2)
    async with linked(network) as (near, far):
        await near.send([b"xyz"])

        assert await receive(far) == b"xy"
        assert await receive(far) == b"z"
        assert trio.current_time() == pytest.approx(2.0)
