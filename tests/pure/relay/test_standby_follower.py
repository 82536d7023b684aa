"""A standby keeps what targets lack, and no more, in one process."""

from collections.abc import AsyncIterator
from collections.abc import Sequence as Several
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.transport.seam import Address
from relay.bridge.home_feed import FeedConfig, HomeFeed, HomeFeeds
from relay.bridge.standby_follower import StandbyFollower
from relay.protocol.standby_buffer import BufferBounds
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import (
    address_of,
    open_ends,
    open_home,
    open_target,
    wait_equal,
)
from tests.pure.relay.test_feeds import noise, wait_begun
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create


@asynccontextmanager
async def open_standby(
    cluster: InProcessCluster, config: FeedConfig | None = None
) -> AsyncIterator[StandbyFollower]:
    async def find_relays(region: str) -> Several[Address]:
        return [address_of(1)]

    async with (
        cluster.open_client(HOME, host="standby", find_relays=find_relays) as log,
        trio.open_nursery() as nursery,
    ):
        feeds = HomeFeeds(region=HOME, log=log, now_us=cluster.now_us, config=config)
        follower = StandbyFollower(feeds, log.links, is_coordinator=lambda: False)
        nursery.start_soon(feeds.run)
        nursery.start_soon(follower.run)
        yield follower
        nursery.cancel_scope.cancel()


def only_feed(follower: StandbyFollower) -> HomeFeed:
    return only(follower.feeds)


def only(feeds: HomeFeeds | None) -> HomeFeed:
    assert feeds is not None
    [feed] = feeds.by_name.values()
    return feed


async def append(log: geolog.Log, *values: bytes) -> None:
    async with log.open_writer(STREAM) as writer:
        await append_each(writer, list(values))


async def test_a_standby_forgets_what_all_targets_have(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_standby(cluster) as follower,
    ):
        await create(log)
        await wait_begun(follower.feeds)
        await append(log, *[noise(5_000)] * 20)
        await trio.sleep(3)
        assert only_feed(follower).buffer.bytes_count > 90_000
        async with open_target(cluster):
            await wait_equal(log)
            await trio.sleep(3)
            feed = only_feed(follower)

            assert feed.buffer.bytes_count == 0
            assert feed.buffer.begin == feed.buffer.end
            assert feed.covers(TARGET)


async def test_a_fresh_standby_reads_what_a_target_lacks_and_replays_it(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log, segment_bytes=64 << 10)
        async with open_home(cluster):
            async with open_target(cluster):
                await append(log, b"first")
                await wait_equal(log)
                await trio.sleep(2)
            await append(log, *[noise(5_000)] * 30)
            async with open_standby(cluster) as follower, trio.open_nursery() as nursery:
                await wait_begun(follower.feeds)
                await trio.sleep(5)
                feed = only_feed(follower)
                assert feed.covers(TARGET)
                assert feed.buffer.bytes_count > 140_000
                assert feed.lag_of(TARGET).records == 30

                async with open_ends(cluster, HOME, 2) as ends:
                    ends.feeds = follower.feeds
                    transport = cluster.network.transport(address_of(2).host)
                    listener = await transport.listen(address_of(2))
                    nursery.start_soon(ends.serve, listener)
                    async with open_target(cluster, 2, home_epoch=2):
                        await wait_equal(log)
                        await trio.sleep(1)
                        assert [one.fetched_count for one in ends.served] == [0]
                    nursery.cancel_scope.cancel()


async def test_a_fresh_standby_reads_what_a_target_lacks_of_a_sealed_stream(
    autojump_clock: MockClock,
) -> None:
    """It has read the stream to its end by then, and there will be nothing new."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        await append(log, *[noise(5_000)] * 30)
        await log.seal_stream(STREAM)
        async with open_standby(cluster) as follower:
            await wait_begun(follower.feeds)
            await trio.sleep(5)
            coordinating = only(home.feeds)
            coordinating.on_durable(TARGET, None)
            await trio.sleep(5)
            feed = only_feed(follower)

            assert feed.covers(TARGET)
            assert feed.buffer.bytes_count > 140_000


async def test_a_standby_leaves_to_the_log_what_does_not_fit(
    autojump_clock: MockClock,
) -> None:
    small = FeedConfig(buffer=BufferBounds(bytes_max=40_000))
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
    ):
        await create(log)
        async with open_target(cluster):
            await append(log, b"first")
            await wait_equal(log)
            await trio.sleep(2)
        await append(log, *[noise(5_000)] * 30)
        async with open_standby(cluster, small) as follower:
            await wait_begun(follower.feeds)
            await trio.sleep(5)
            feed = only_feed(follower)

            assert follower.reports_count > 2
            assert not feed.covers(TARGET)
            assert feed.buffer.bytes_count <= 40_000


async def test_a_place_that_is_taken_back_is_forgotten_by_the_standby_too(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_standby(cluster) as follower,
    ):
        await create(log)
        await wait_begun(follower.feeds)
        async with open_target(cluster):
            await append(log, b"first")
            await wait_equal(log)
            await trio.sleep(3)
        feed, coordinating = only_feed(follower), only(home.feeds)
        before = feed.standing(TARGET).heard
        coordinating.standing(TARGET).stop(409, "the mirror differs")
        await trio.sleep(3)
        after = feed.standing(TARGET).heard

    assert before is not None
    assert after is None


async def test_a_report_of_a_mirror_that_was_removed_says_nothing_of_the_next_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow_record = HomeFeed.follow_record
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_standby(cluster) as follower,
    ):
        await create(log)
        await wait_begun(follower.feeds)
        async with open_target(cluster):
            await append(log, b"first")
            await wait_equal(log)
            await trio.sleep(3)
        feed = only_feed(follower)
        before = feed.standing(TARGET).heard

        def follow_unless_late(feed: HomeFeed, record: StreamRecord) -> None:
            if feed.owner is not home.feeds:
                follow_record(feed, record)

        monkeypatch.setattr(HomeFeed, "follow_record", follow_unless_late)
        for relay_to in ([], [TARGET]):
            await log.update_stream(STREAM, relay_to=relay_to)
        await trio.sleep(5)
        told = only(home.feeds).standing(TARGET).heard
        after = feed.standing(TARGET).heard

    assert before == told
    assert before is not None
    assert after is None


async def test_a_member_that_knows_more_than_its_coordinator_keeps_what_it_knows(
    autojump_clock: MockClock,
) -> None:
    """It coordinated before, and its successor has not heard from the target yet."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_standby(cluster) as follower,
    ):
        await create(log)
        await wait_begun(follower.feeds)
        async with open_target(cluster):
            await append(log, b"first", b"second")
            await wait_equal(log)
            await trio.sleep(3)
        known = only_feed(follower).standing(TARGET).durable
        assert known is not None
        assert known.sequence_next == 2

        coordinating = only(home.feeds)
        first = attrs.evolve(known, entry=SegmentEntry(0), sequence_next=Sequence(1))
        for older in (None, first):
            coordinating.on_durable(TARGET, older)
            await trio.sleep(3)
            assert only_feed(follower).standing(TARGET).durable == known


async def test_a_standby_remembers_nothing_of_a_target_that_it_knows_to_be_removed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has not heard of the removal yet, and goes on telling of it."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_standby(cluster) as follower,
        open_target(cluster),
    ):
        await create(log)
        await wait_begun(follower.feeds)
        await append(log, b"first")
        await wait_equal(log)
        await trio.sleep(3)
        feed, wanted = only_feed(follower), HomeFeeds._wanted  # noqa: SLF001
        assert feed.standing(TARGET).is_told

        async def wanted_without(feeds: HomeFeeds) -> dict[PartitionName, StreamRecord]:
            found = await wanted(feeds)
            if feeds is not follower.feeds:
                return found
            return {name: attrs.evolve(record, relay_to=()) for name, record in found.items()}

        monkeypatch.setattr(HomeFeeds, "_wanted", wanted_without)
        reports_count = follower.reports_count
        await trio.sleep(3)

        assert follower.reports_count > reports_count
        assert TARGET not in feed.targets
