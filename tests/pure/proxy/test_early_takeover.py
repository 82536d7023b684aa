"""Proxies that watch each other take over before a session ends, but not too often."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from trio.testing import MockClock

from geolog.background import all_of
from geolog.client.proxies.connection import BEAT_S, SILENT_BEATS_MAX
from geolog.client.writing.writer import Writer
from geolog.protocol.stream_state import PartitionName
from regions.proxy.early_takeovers import EarlyTakeovers
from tests.pure.proxy.proxies import open_session
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import STREAM, World, open_world, partition_of, values_of

APPEND = "/v1/streams/shop/orders/append"
SESSION_S = 6.0
OUTAGE_S_MAX = 1.5
STORE_TRIP_S = 0.3
"""To a metadata store in another region."""
STORE_TURNS_MAX = 18
"""Detection, client and taker together, if every read costs a round trip."""


@attrs.define
class Site:
    """Two proxies, and a writer in another region."""

    world: World
    proxies: dict[str, RunningProxy]
    writer: Writer
    nursery: trio.Nursery

    async def owner(self) -> str:
        (partition,) = (await self.world.log.describe_stream(STREAM)).partition_list
        return (partition.owner or "").split()[1]

    async def start(self, proxy_id: str) -> None:
        running = RunningProxy(self.world.cluster, proxy_id, "us-east")
        self.proxies[proxy_id] = await self.nursery.start(running.run)

    async def kill_owner(self) -> tuple[str, float]:
        """Kill the owner; its name, and the time until the next record is acknowledged."""
        owner = await self.owner()
        begun_s = trio.current_time()
        self.nursery.start_soon(self.proxies.pop(owner).kill)
        await self.writer.append(b"v")
        return owner, trio.current_time() - begun_s


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    async with (
        open_world() as world,
        trio.open_nursery() as nursery,
        world.cluster.open_client("eu-west", host="client", via="proxy") as log,
    ):
        proxies: dict[str, RunningProxy] = {}
        for proxy_id in ("one", "two"):
            running = RunningProxy(world.cluster, proxy_id, "us-east")
            proxies[proxy_id] = await nursery.start(running.run)
        async with log.open_writer(STREAM, writer_id="till-7") as writer:
            await writer.append(b"v")
            await trio.sleep(1.0)  # The proxies have found each other.
            yield Site(world, proxies, writer, nursery)
        nursery.cancel_scope.cancel(reason="the test is over")


async def test_a_killed_owners_partition_is_taken_before_its_session_ends(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        owner, outage_s = await site.kill_owner()
        successor = await site.owner()
        read = await values_of(site.world.log)

    assert outage_s < OUTAGE_S_MAX
    assert successor != owner
    assert len(read) == 2


async def test_a_silent_owners_partition_is_taken_after_seven_beats(
    autojump_clock: MockClock,
) -> None:
    """Nobody hears its host, but its session lives on."""
    async with open_site() as site:
        owner = await site.owner()
        (other,) = site.proxies.keys() - {owner}
        peers = site.proxies[other].proxy.peers
        site.world.cluster.network.darken(owner)
        await trio.sleep(1.7)
        suspected_early = peers.suspected
        await trio.sleep(0.8)
        suspected = peers.suspected
        async with (
            site.world.cluster.open_client("us-east", host="new", via="proxy") as log,
            log.open_writer(STREAM, writer_id="till-8") as writer,
        ):
            await writer.append(b"v")
        successor = await site.owner()
        early_count = site.proxies[other].proxy.early.count

    assert (suspected_early, suspected) == ([], [f"proxy {owner} in us-east"])
    assert successor == other
    assert early_count == 1


async def test_a_writer_leaves_an_owner_that_falls_silent_and_a_late_answer_is_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        owner = await site.owner()
        site.world.cluster.network.darken(owner)
        begun_s = trio.current_time()
        await site.writer.append(b"silence")
        outage_s = trio.current_time() - begun_s
        site.world.cluster.network.lighten(owner)
        await site.writer.append(b"heard again")
        read = await values_of(site.world.log)

    assert SILENT_BEATS_MAX * BEAT_S <= outage_s < SILENT_BEATS_MAX * BEAT_S + 3.0
    assert read == [b"v", b"silence", b"heard again"]


async def test_a_second_early_takeover_waits_until_the_pause_is_over(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        outages_s = []
        for pause_s in (0.0, 0.0, 60.0):
            await trio.sleep(pause_s)
            owner, outage_s = await site.kill_owner()
            outages_s.append(outage_s)
            await trio.sleep(2 * SESSION_S)
            await site.start(owner)
            await trio.sleep(1.0)
        read = await values_of(site.world.log)

    first_s, within_pause_s, after_pause_s = outages_s
    assert first_s < OUTAGE_S_MAX
    assert within_pause_s > SESSION_S / 2
    assert after_pause_s < OUTAGE_S_MAX
    assert len(read) == 4


async def test_proxies_that_cannot_hear_each_other_both_serve_their_clients(
    autojump_clock: MockClock,
) -> None:
    """A wrong guess costs one takeover; then each sends its clients to the owner."""
    async with open_site() as site:
        site.world.cluster.network.cut("one", "two")
        await trio.sleep(3.0)
        pauses_s = []
        for number in range(4):
            # Each client asks one of the two at random, and the first writer goes on, too.
            begun_s = trio.current_time()
            async with (
                site.world.cluster.open_client(
                    "us-east", host=f"new {number}", via="proxy"
                ) as log,
                log.open_writer(STREAM, writer_id=f"till {number}") as writer,
            ):
                await writer.append(b"v")
            await site.writer.append(b"v")
            pauses_s.append(trio.current_time() - begun_s)
        first_frames = []
        for running in site.proxies.values():
            async with open_session(site.world.cluster, running.proxy, APPEND) as session:
                first_frames.append(await session.receive())
        early_count = sum(one.proxy.early.count for one in site.proxies.values())
        read = await values_of(site.world.log)
        site.world.cluster.network.mend("one", "two")

    assert early_count == 1
    assert {one.get("code") for one in first_frames} == {None, 302}
    assert max(pauses_s) < OUTAGE_S_MAX
    assert len(read) == 1 + 2 * len(pauses_s)


async def test_one_permit_stands_for_a_partition_at_a_time(autojump_clock: MockClock) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        name = await partition_of(world.log)
        other = PartitionName(name.stream, 1, name.life)
        async with (
            world.cluster.store.open_session() as first,
            world.cluster.store.open_session() as second,
        ):
            proxies = [
                EarlyTakeovers(session, "default", pause_s=30.0, nursery=nursery)
                for session in (first, second)
            ]
            got = await all_of([partial(one.ask, name) for one in proxies])
            got_other = await proxies[0].ask(other)
            await trio.sleep(29.0)
            got_soon = [await one.ask(name) for one in proxies]
            await trio.sleep(2.0)
            got_later = [await one.ask(name) for one in proxies]
            nursery.cancel_scope.cancel(reason="the test is over")

    assert (sorted(got), got_other) == ([False, True], True)
    assert got_soon == [False, False]
    assert got_later == [True, False]


async def test_a_proxy_that_drains_is_not_suspected(autojump_clock: MockClock) -> None:
    async with open_site() as site:
        owner = await site.owner()
        (other,) = site.proxies.keys() - {owner}
        watching = site.proxies[other].proxy
        seen: list[list[str]] = []

        async def watch() -> None:
            while True:
                seen.append(watching.peers.suspected)
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await site.proxies[owner].drain()
            await trio.sleep(SESSION_S)
            nursery.cancel_scope.cancel(reason="seen enough")
        early_count = watching.early.count

    assert not any(seen)
    assert early_count == 0


async def test_a_proxy_that_starts_again_takes_its_partition_back_at_once(
    autojump_clock: MockClock,
) -> None:
    """It is alone, and its earlier process still has a session."""
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="client", via="proxy") as log,
        trio.open_nursery() as nursery,
    ):
        first = await nursery.start(RunningProxy(world.cluster, "one", "us-east").run)
        async with log.open_writer(STREAM, writer_id="till-7") as writer:
            await writer.append(b"v")
            begun_s = trio.current_time()
            nursery.start_soon(first.kill)
            await trio.sleep(0.1)
            await nursery.start(RunningProxy(world.cluster, "one", "us-east").run)
            await writer.append(b"v")
            outage_s = trio.current_time() - begun_s
        read = await values_of(world.log)
        nursery.cancel_scope.cancel(reason="the test is over")

    assert outage_s < OUTAGE_S_MAX
    assert read == [b"v", b"v"]


async def test_a_takeover_asks_a_distant_metadata_store_in_few_turns(
    autojump_clock: MockClock,
) -> None:
    """Each turn waits for the one before: to a store in another region, that is the outage."""
    async with open_site() as site:
        site.world.cluster.store.round_trip_s = lambda: STORE_TRIP_S
        _, outage_s = await site.kill_owner()

    assert outage_s / STORE_TRIP_S < STORE_TURNS_MAX
