"""The emulator delivers connections late, whole, in order, bounded, and cut on request."""

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from geolog.transport.gateway import Gateway, GatewayTransport
from geolog.transport.seam import (
    Address,
    AddressInUseError,
    ByteStream,
    ConnectionFailedError,
    Listener,
)
from geolog.transport.tcp import TcpConfig, TcpTransport
from sim.processes.wan.check import check
from sim.processes.wan.conditions import ALL, LinkChange, Wan
from sim.processes.wan.control import ask_change, ask_show, open_wan_control
from sim.processes.wan.emulator import Emulator, open_emulator
from sim.processes.wan.setup import Forward, WanSetup
from tests.system.addresses import free_addresses
from tests.system.demo_process import WAIT_S_MAX
from topology.errors import InvalidArgumentError, NotFoundError

RTT_S = 0.040


class Site:
    """An emulator between `a` and `b`, and a server in `b`."""

    def __init__(self, emulator: Emulator, listener: Listener) -> None:
        self.emulator = emulator
        self.listener = listener
        self._streams: list[ByteStream] = []

    def change(self, change: LinkChange, *, is_one_way: bool = False) -> None:
        self.emulator.change("a", "b", change, is_one_way=is_one_way)

    async def dial(self, region: str = "a", tcp: TcpTransport | None = None) -> ByteStream:
        """Reach the server from a region."""
        gateway = Gateway(Address.parse(self.emulator.setup.gateway), region)
        transport = GatewayTransport(gateway, tcp or TcpTransport())
        return self._kept(await transport.connect(self.listener.address))

    async def dial_plainly(self, address: str) -> ByteStream:
        """Connect to one of the emulator's ports, and say nothing."""
        return self._kept(await TcpTransport().connect(Address.parse(address)))

    async def accept(self) -> ByteStream:
        """The server's end of the next connection."""
        return self._kept(await self.listener.accept())

    async def connected(self) -> tuple[ByteStream, ByteStream]:
        """Both ends of a connection from `a` to the server."""
        near = await self.dial()
        return near, await self.accept()

    def close(self) -> None:
        """Close all that was opened."""
        for stream in self._streams:
            stream.close()
        self.listener.close()

    def _kept(self, stream: ByteStream) -> ByteStream:
        self._streams.append(stream)
        return stream


@asynccontextmanager
async def open_site(change: LinkChange | None = None) -> AsyncIterator[Site]:
    gateway, probe_a, probe_b, forward = map(str, free_addresses(4))
    listener = await TcpTransport().listen(Address("127.0.0.1", 0))
    wan = Wan.between(("a", "b")).changed(
        "a", "b", change or LinkChange(rtt_s=RTT_S), is_one_way=False
    )
    server = str(listener.address)
    setup = WanSetup(
        wan=wan,
        gateway=gateway,
        places={server: "b", probe_a: "a", probe_b: "b"},
        probes={"a": probe_a, "b": probe_b},
        forwards=(Forward(listen=forward, to=server, here="a", there="b"),),
    )
    async with open_emulator(setup, random.Random(7)) as emulator:
        site = Site(emulator, listener)
        try:
            yield site
        finally:
            site.close()


async def takes(measured_s: Callable[[], Awaitable[float]], s_min: float, s_max: float) -> None:
    """It never takes less, and no more unless the cores are busy, which does not last."""
    with trio.fail_after(WAIT_S_MAX):
        took_s = math.inf
        while took_s > s_max:
            took_s = await measured_s()
            assert took_s >= s_min


async def receive(stream: ByteStream, count: int, *, at_once_bytes_max: int = 1 << 18) -> bytes:
    received, buffer = bytearray(), bytearray(at_once_bytes_max)
    while len(received) < count:
        size = await stream.receive_into(buffer)
        if not size:
            break
        received += memoryview(buffer)[:size]
    return bytes(received)


async def test_a_round_trip_takes_what_was_asked_for() -> None:
    async with open_site() as site:
        setup = site.emulator.setup

        async def measured_s() -> float:
            [found] = await check(
                setup.gateway, dict(setup.probes), dict(site.emulator.wan.directions)
            )
            assert found.dial_s is not None
            assert found.dial_s >= RTT_S - 0.002
            assert found.median_s is not None
            return found.median_s

        await takes(measured_s, RTT_S - 0.002, RTT_S + 0.010)


async def test_a_new_round_trip_holds_at_once_for_connections_that_are_open() -> None:
    async with open_site() as site:
        near, far = await site.connected()
        site.change(LinkChange(rtt_s=0.2))

        started_s = trio.current_time()
        await near.send([b"ping"])
        await receive(far, 4)

        assert trio.current_time() - started_s >= 0.099


async def test_all_bytes_arrive_in_order_both_ways_also_with_jitter_and_stalls() -> None:
    rough = LinkChange(rtt_s=0.02, jitter_s=0.02, stall_rate=0.05, stall_s=0.01)
    async with open_site(rough) as site:
        near, far = await site.connected()
        there, back = random.Random(1).randbytes(3 << 20), random.Random(2).randbytes(3 << 20)
        got: dict[str, bytes] = {}

        async def take(name: str, stream: ByteStream, count: int) -> None:
            got[name] = await receive(stream, count)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.send, [there])
            nursery.start_soon(far.send, [back])
            nursery.start_soon(take, "there", far, len(there))
            nursery.start_soon(take, "back", near, len(back))

    assert got["there"] == there
    assert got["back"] == back


async def test_the_bandwidth_is_held() -> None:
    async with open_site(LinkChange(rtt_s=0.002, bandwidth_bytes_per_s=4e6)) as site:
        near, far = await site.connected()

        async def measured_s() -> float:
            started_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(near.send, [bytes(2 << 20)])
                await receive(far, 2 << 20)
            return trio.current_time() - started_s

        await takes(measured_s, 0.5, 1.0)


async def test_a_receiver_that_does_not_read_presses_back_on_its_sender_alone() -> None:
    small = TcpTransport(TcpConfig(send_buffer_bytes=1 << 16))
    async with open_site(LinkChange(rtt_s=0.002, bandwidth_bytes_per_s=50e6)) as site:
        idle = await site.dial(tcp=small)
        await site.accept()
        near, far = await site.connected()
        with trio.move_on_after(1.0) as scope:
            await idle.send([bytes(64 << 20)])
        assert scope.cancelled_caught

        await near.send([b"goes through"])

        assert await receive(far, 12) == b"goes through"
        [held_bytes] = [
            status.held_bytes for status in site.emulator.status() if status.here == "a"
        ]
        assert held_bytes <= 2 << 20


async def test_a_cut_holds_what_is_sent_until_it_is_healed() -> None:
    async with open_site() as site:
        near, far = await site.connected()
        site.change(LinkChange(is_cut=True))
        await near.send([b"later"])
        with trio.move_on_after(0.15) as scope:
            await receive(far, 1)
        assert scope.cancelled_caught

        site.change(LinkChange(is_cut=False))

        assert await receive(far, 5) == b"later"


async def test_a_one_way_cut_lets_the_other_direction_through() -> None:
    async with open_site() as site:
        near, far = await site.connected()
        site.change(LinkChange(is_cut=True), is_one_way=True)

        await far.send([b"still heard"])
        assert await receive(near, 11) == b"still heard"

        await near.send([b"not heard"])
        with trio.move_on_after(0.15) as scope:
            await receive(far, 1)
        assert scope.cancelled_caught


async def test_across_a_cut_nobody_connects_until_it_is_healed() -> None:
    async with open_site() as site:
        site.change(LinkChange(is_cut=True))
        with trio.move_on_after(0.15) as scope:
            await site.dial()
        assert scope.cancelled_caught

        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.dial)
            site.change(LinkChange(is_cut=False))


async def test_a_client_in_the_servers_region_connects_without_the_emulator() -> None:
    async with open_site(LinkChange(rtt_s=20.0)) as site:
        with trio.fail_after(10):
            near = await site.dial("b")
            far = await site.accept()
            await near.send([b"here"])

            assert await receive(far, 4) == b"here"
        assert all(not status.connections_count for status in site.emulator.status())


async def test_an_unknown_region_is_refused_by_name() -> None:
    async with open_site() as site:
        with pytest.raises(ConnectionFailedError, match=r"unknown region 'mars' .* are a, b"):
            await site.dial("mars")


async def test_a_server_that_is_down_is_refused_one_round_trip_later() -> None:
    async with open_site() as site:
        site.listener.close()
        started_s = trio.current_time()

        with pytest.raises(ConnectionFailedError, match="refused"):
            await site.dial()

        assert trio.current_time() - started_s >= RTT_S - 0.002


async def test_the_end_of_a_stream_travels_like_its_bytes() -> None:
    async with open_site() as site:
        near, far = await site.connected()
        await near.send([b"last words"])
        near.close()

        assert await receive(far, 100) == b"last words"


async def test_a_reset_reaches_the_other_side_after_the_delay() -> None:
    async with open_site() as site:
        near, far = await site.connected()
        await near.send([b"unread"])
        await receive(far, 1, at_once_bytes_max=1)
        started_s = trio.current_time()
        far.close()  # With bytes unread: the kernel resets the connection.

        with pytest.raises(ConnectionFailedError):
            await receive(near, 1)

        assert trio.current_time() - started_s >= RTT_S / 2 - 0.002


async def test_connections_that_are_over_leave_nothing_behind() -> None:
    async with open_site() as site:
        for _ in range(5):
            near, far = await site.connected()
            await near.send([b"x"])
            await receive(far, 1)
            near.close()
            far.close()
        with trio.fail_after(WAIT_S_MAX):
            while any(  # noqa: ASYNC110 - An emulator tells nobody.
                status.connections_count or status.held_bytes
                for status in site.emulator.status()
            ):
                await trio.sleep(RTT_S)


async def test_a_forwarded_port_leads_to_its_server_from_its_region() -> None:
    async with open_site() as site:
        [forward] = site.emulator.setup.forwards
        started_s = trio.current_time()
        near = await site.dial_plainly(forward.listen)
        await near.send([b"to the server"])
        far = await site.accept()

        assert await receive(far, 13) == b"to the server"
        assert trio.current_time() - started_s >= RTT_S - 0.002


async def test_bytes_sent_before_a_close_arrive_at_a_forwarded_port() -> None:
    async with open_site() as site:
        [forward] = site.emulator.setup.forwards
        near = await site.dial_plainly(forward.listen)
        await near.send([b"call me back"])
        near.close()
        far = await site.accept()

        assert await receive(far, 100) == b"call me back"


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n", b"geolog-dial/1 a\n", b"\xff" * 400 + b"\n"]
)
async def test_any_other_request_to_the_gateway_is_refused_with_a_reason(said: bytes) -> None:
    async with open_site() as site:
        near = await site.dial_plainly(site.emulator.setup.gateway)
        await near.send([said])

        assert (await receive(near, 16)).startswith(b"refused a gatewa")


async def test_a_change_of_all_links_holds_for_each() -> None:
    async with open_site() as site:
        site.emulator.change(ALL, ALL, LinkChange(is_cut=True), is_one_way=False)

        assert all(status.conditions.is_cut for status in site.emulator.status())


async def test_a_port_in_use_is_named_before_anything_is_served() -> None:
    async with open_site() as site:
        with pytest.raises(AddressInUseError, match="another process listens on 127"):
            site.emulator.listen()


async def test_another_terminal_changes_links_and_sees_them_changed(tmp_path: Path) -> None:
    async with open_site() as site, open_wan_control(site.emulator, tmp_path):
        change = LinkChange(bandwidth_bytes_per_s=20e6)
        answer = await ask_change(tmp_path, "a", "b", change, is_one_way=True)
        shown = await ask_show(tmp_path)

        assert answer == shown
        assert isinstance(shown["links"], list)
        bandwidths = {link["from"]: link["bandwidth_bytes_per_s"] for link in shown["links"]}
        assert bandwidths == {"a": 20e6, "b": 125e6}


async def test_an_impossible_change_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with open_site() as site, open_wan_control(site.emulator, tmp_path):
        before = await ask_show(tmp_path)

        with pytest.raises(NotFoundError, match="no link a-mars"):
            await ask_change(tmp_path, "a", "mars", LinkChange(is_cut=True), is_one_way=False)
        with pytest.raises(InvalidArgumentError, match=r"the jitter must be .* got 9s"):
            await ask_change(
                tmp_path, ALL, ALL, LinkChange(is_cut=True, jitter_s=9.0), is_one_way=False
            )

        assert await ask_show(tmp_path) == before


async def test_a_missing_emulator_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no demo with an emulated WAN runs in"):
        await ask_show(tmp_path)


async def test_a_missing_gateway_is_reported() -> None:
    [nobody] = free_addresses(1)
    transport = GatewayTransport(Gateway(nobody, "a"))

    with pytest.raises(ConnectionFailedError, match="cannot connect to"):
        await transport.connect(Address("127.0.0.1", 1))


async def test_a_listener_that_is_not_a_gateway_is_detected() -> None:
    listener = await TcpTransport().listen(Address("127.0.0.1", 0))

    async def answer_as_a_web_server() -> None:
        other = await listener.accept()
        await other.send([b"HTTP/1.1 400 Bad Request\r\n\r\n"])
        other.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_as_a_web_server)
        transport = GatewayTransport(Gateway(listener.address, "a"))
        with pytest.raises(ConnectionFailedError, match="is one running there"):
            await transport.connect(Address("127.0.0.1", 1))
    listener.close()
