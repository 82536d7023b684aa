"""The owner's multicast in one process: real owners, feeds and bridges."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition import relay_multicast
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.websocket import WebSockets
from geolog.wire.multicast import (
    MULTICAST_BYTES_MAX,
    MULTICAST_PATH,
    SUBPROTOCOL_MULTICAST,
    MulticastEntry,
    MulticastHello,
    MulticastLog,
    decode_multicast,
    encode_multicast,
)
from relay.bridge.bridge_ends import BridgeEnds
from relay.bridge.home_feed import HomeFeed
from relay.bridge.multicast_inlet import MulticastInlet
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.logs import home_log
from tests.pure.relay.test_bridges import address_of, open_home, open_target, wait_equal
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, create


@asynccontextmanager
async def open_owner(cluster: InProcessCluster, *relays: Address) -> AsyncIterator[geolog.Log]:
    """A client at home that knows these relays."""

    async def find_relays(region: str) -> Sequence[Address]:
        return relays if region == HOME else ()

    async with cluster.open_client(HOME, host="owner", find_relays=find_relays) as log:
        yield log


async def feed_of(home: BridgeEnds) -> HomeFeed:
    """The only feed, once it has begun."""
    with trio.fail_after(30):
        while True:
            if home.feeds is not None:
                for feed in home.feeds.by_name.values():
                    if feed.has_begun:
                        return feed
            await trio.sleep(0.05)


async def append_slowly(log: geolog.Log, count: int) -> list[float]:
    """Append one record at a time; how long each took."""
    took_s = []
    async with log.open_writer(STREAM, writer_id="till") as writer:
        for number in range(count):
            began_s = trio.current_time()
            await writer.append(random.Random(number).randbytes(2_000))
            took_s.append(trio.current_time() - began_s)
            await trio.sleep(0.1)
    return took_s


async def test_the_multicast_brings_entries_before_the_reader_finds_them(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_owner(cluster, address_of(1)) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log, segment_bytes=64 << 10)
        feed = await feed_of(home)
        await append_slowly(log, 80)
        await wait_equal(log)

        assert feed.multicast_count > 40
        assert feed.placing.refused_count > 1, "segments begin with the reader"
        assert feed.failure is None
        assert [bridge.alarms for bridge in home.served] == [[]]
        assert home.inlet.failures == []


async def test_a_relay_that_never_reads_delays_no_append(autojump_clock: MockClock) -> None:
    deaf = Address("deaf", 1)

    async def stay_deaf(_socket: MessageSocket, _path: str) -> None:
        await trio.sleep_forever()

    async with open_in_process_cluster(REGIONS) as cluster, trio.open_nursery() as nursery:
        transport = cluster.network.transport(deaf.host)
        listener = await transport.listen(deaf)

        async def serve() -> None:
            stream = await listener.accept()
            await WebSockets(transport).serve(
                stream,
                lambda offered: offered[0],
                stay_deaf,
                refusal="",
                message_bytes_max=MULTICAST_BYTES_MAX,
            )

        nursery.start_soon(serve)
        async with open_owner(cluster) as log:
            await create(log)
            alone_s = await append_slowly(log, 30)
        async with open_owner(cluster, deaf, Address("nobody", 1)) as log:
            with_deaf_s = await append_slowly(log, 30)
        nursery.cancel_scope.cancel()

    assert max(with_deaf_s[1:]) <= 1.2 * max(alone_s[1:])


async def test_a_relay_of_the_version_before_is_asked_nothing(
    autojump_clock: MockClock,
) -> None:
    """It would close the connection at a message that it does not know."""
    old, heard = Address("old", 1), set()

    async def note(socket: MessageSocket, _path: str) -> None:
        with suppress(SocketClosedError):
            while True:
                for message in decode_multicast(await socket.receive()):
                    heard.add(type(message))

    async with open_in_process_cluster(REGIONS) as cluster, trio.open_nursery() as nursery:
        transport = cluster.network.transport(old.host)
        listener = await transport.listen(old)

        async def serve() -> None:
            stream = await listener.accept()
            await WebSockets(transport).serve(
                stream,
                lambda offered: next(one for one in offered if "v1" in one),
                note,
                refusal="",
                message_bytes_max=MULTICAST_BYTES_MAX,
            )

        nursery.start_soon(serve)
        async with open_owner(cluster, old) as log:
            await create(log)
            await log.update_stream(STREAM, rpo_max_s=60)
            await append_slowly(log, 10)
        nursery.cancel_scope.cancel()

    assert heard == {MulticastHello, MulticastLog, MulticastEntry}


async def test_relays_that_come_and_go_lose_and_repeat_nothing(
    autojump_clock: MockClock,
) -> None:
    addresses = [address_of(epoch) for epoch in (1, 2)]
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_owner(cluster, *addresses) as log,
        trio.open_nursery() as nursery,
    ):
        await create(log, segment_bytes=64 << 10)
        nursery.start_soon(append_slowly, log, 120)
        for epoch in (1, 2, 1, 2):
            async with open_home(cluster, epoch), open_target(cluster, home_epoch=epoch):
                await trio.sleep(2.5)
        async with open_home(cluster, 1), open_target(cluster):
            await trio.sleep(10)
            assert await wait_equal(log) >= 120


async def refusal(cluster: InProcessCluster, *messages: bytes | str) -> str:
    async with WebSockets(cluster.network.transport("stranger")).open(
        address_of(1),
        MULTICAST_PATH,
        subprotocols=(SUBPROTOCOL_MULTICAST,),
        message_bytes_max=MULTICAST_BYTES_MAX,
    ) as socket:
        for message in messages:
            await socket.send(message)
        try:
            await socket.receive()
        except SocketClosedError as closed:
            return f"{closed.close_code} {closed.reason}"
    raise AssertionError("it was not closed")


async def test_strangers_are_refused_with_the_reason(autojump_clock: MockClock) -> None:
    hello = encode_multicast(MulticastHello("default", HOME, "owner"))
    named = encode_multicast(MulticastLog(1, "shop/carts", "life", 0))
    entry = home_log("1").entries[0].encoded
    whole = encode_multicast(MulticastEntry(1, entry))
    damaged = whole[:-3] + bytes([whole[-3] ^ 4]) + whole[-2:]
    async with open_in_process_cluster(REGIONS) as cluster, open_home(cluster) as home:
        strange = encode_multicast(MulticastHello("bank", HOME, "owner"))
        assert "4403 this is a relay of cluster 'default'" in await refusal(cluster, strange)
        elsewhere = encode_multicast(MulticastHello("default", "ap-south", "owner"))
        assert "'default' in 'ap-south'" in await refusal(cluster, elsewhere)
        assert "begins with MulticastLog" in await refusal(cluster, named)
        assert "which was not named" in await refusal(cluster, hello, whole)
        assert "4400 a text in a multicast" in await refusal(cluster, "hello")
        assert "cut within a header" in await refusal(cluster, b"abc")
        assert "4" in await refusal(cluster, hello + named + damaged)
        assert len(home.inlet.failures) == 7
        assert home.feeds is not None
        assert home.feeds.damaged_multicasts_count == 5  # All but those from elsewhere.


async def test_a_connection_with_many_names_is_opened_again_once_it_is_old(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = MulticastInlet.serve
    begun_s: list[float] = []

    async def serve_and_note(inlet: MulticastInlet, socket: MessageSocket) -> None:
        begun_s.append(trio.current_time())
        await serve(inlet, socket)

    monkeypatch.setattr(MulticastInlet, "serve", serve_and_note)
    monkeypatch.setattr(relay_multicast, "NAMES_MAX", 2)
    monkeypatch.setattr(relay_multicast, "RENEW_S", 5.0)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_owner(cluster, address_of(1)) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log, partitions=3)
        async with log.open_writer(STREAM) as writer:
            for number in range(120):
                await writer.append(b"v", key=b"%d" % number)
                await trio.sleep(0.1)
        for number in range(3):
            await wait_equal(log, number)

    assert 2 <= len(begun_s) <= 4, "not for each name"
