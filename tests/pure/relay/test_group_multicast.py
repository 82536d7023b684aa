"""Relay groups with the multicast of owners: found in metadata, and at work in a takeover."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.relay_report import LinkState
from geolog.transport.message_socket import SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.websocket import WebSockets
from geolog.wire.multicast import MULTICAST_PATH, SUBPROTOCOL_MULTICAST
from relay.bridge.home_feed import HomeFeed
from relay.server.relay import Relay
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.relay.test_relay_groups import PORT, open_groups
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create


def feed_of(relay: Relay) -> HomeFeed:
    feeds = relay.feeds
    assert feeds is not None
    [feed] = feeds.by_name.values()
    return feed


def mirrors_of(relay: Relay) -> list[MirrorWriter]:
    assert relay.ends is not None
    return [one for bridge in relay.ends.dialled.values() for one in bridge.mirrors]


async def append_for(log: geolog.Log, seconds: float) -> int:
    """Append a record every 50 ms."""
    async with log.open_writer(STREAM, writer_id="till") as writer:
        count, end_s = 0, trio.current_time() + seconds
        while trio.current_time() < end_s:
            await writer.append(random.Random(count).randbytes(1_000))
            count += 1
            await trio.sleep(0.05)
    return count


async def test_owners_find_coordinator_and_standby_and_both_number_alike(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster, count=3) as groups,
    ):
        await create(log)
        await trio.sleep(3)
        await append_for(log, 5)
        await wait_equal(log)
        await trio.sleep(3)
        coordinator, standby, waiting = [member.relay for member in groups[HOME]]
        feeds = [feed_of(coordinator), feed_of(standby)]

        assert min(one.multicast_count for one in feeds) > 30
        assert feeds[0].buffer.end == feeds[1].buffer.end
        assert [one.buffer.bytes_count for one in feeds] == [0, 0], "every target has all"
        assert waiting.feeds is None
        [found] = await log.relay_status()
        assert (found.state, found.lag_records) == (LinkState.LIVE, 0)
        assert (found.coordinator, found.standby) == (
            coordinator.relay_id,
            standby.relay_id,
        )


async def test_a_takeover_under_load_reads_nothing_from_the_log_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        await trio.sleep(3)
        nursery.start_soon(append_for, log, 8)
        await trio.sleep(4)
        first, second = groups[HOME]
        await first.leave()
        await trio.sleep(8)
        await wait_equal(log)
        ends = second.relay.ends
        assert ends is not None
        [bridge] = ends.served
        events = []
        async with log.relay_events() as found:
            events = [event.after async for event in found]

        assert (bridge.fetched_count, bridge.alarms) == (0, [])
        assert feed_of(second.relay).failure is None
        assert events[-1:] == ["live"]


@pytest.mark.parametrize("region", [HOME, pytest.param(TARGET, marks=pytest.mark.long)])
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "cut off"])
async def test_nothing_is_sent_again_after_a_coordinator_leaves(
    autojump_clock: MockClock, region: str, *, leaves: bool
) -> None:
    """One that is cut off cannot say how far it came, and does not take what was sent."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster) as groups,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        await trio.sleep(3)
        nursery.start_soon(append_for, log, 12)
        await trio.sleep(4)
        if leaves:
            await groups[region][0].leave()
        else:
            cluster.network.darken(groups[region][0].host)
        await trio.sleep(12)
        await wait_equal(log)
        home = groups[HOME][1 if region == HOME else 0].relay
        target = groups[TARGET][1 if region == TARGET else 0].relay
        assert home.ends is not None
        [bridge] = home.ends.served
        [way] = bridge.progress()
        [mirror] = mirrors_of(target)

        assert way.sent_count > 20
        assert (way.replayed_count == 0) == leaves
        assert mirror.statistics().repeats_count == 0
        nursery.cancel_scope.cancel()


async def test_a_member_that_keeps_no_records_closes_a_multicast_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster, count=3) as groups,
    ):
        await create(log)
        await trio.sleep(3)
        assert groups[HOME][2].relay.feeds is None
        messages = WebSockets(cluster.network.transport("owner"))
        async with messages.open(
            Address(f"{HOME}-relay-2", PORT),
            MULTICAST_PATH,
            subprotocols=(SUBPROTOCOL_MULTICAST,),
            message_bytes_max=1 << 10,
        ) as socket:
            with pytest.raises(SocketClosedError, match=r"4503: .* is waiting in .*; its"):
                await socket.receive()
