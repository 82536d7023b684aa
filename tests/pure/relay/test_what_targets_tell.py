"""Answers of targets: which of them a home believes, and what it shows of those that fail."""

import attrs
import trio
from trio.testing import MockClock

import geolog
from relay.bridge.bridge_ends import BridgeEnds
from relay.bridge.home_feed import HomeFeed
from relay.protocol.bridge_messages import (
    AskWatermark,
    DurableTold,
    SendEntry,
    WatermarkTold,
)
from sim.in_process import open_in_process_cluster
from tests.pure.relay.scripted_target import open_scripted_target
from tests.pure.relay.test_bridges import open_home
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create


async def append(log: geolog.Log, *values: bytes) -> None:
    async with log.open_writer(STREAM) as writer:
        await append_each(writer, list(values))


def feed_of(home: BridgeEnds) -> HomeFeed:
    assert home.feeds is not None
    [feed] = home.feeds.by_name.values()
    return feed


async def test_answers_of_a_removed_mirror_are_not_believed_of_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        await append(log, b"one")
        await trio.sleep(3)
        async with open_scripted_target(cluster) as target:
            asked = await target.hear(AskWatermark)
            await target.tell(WatermarkTold(asked.channel, None))
            sent = await target.hear(SendEntry)
            feed = feed_of(home)
            before = feed.targets[TARGET]
            added_again = attrs.evolve(feed.record, relay_additions=((TARGET, 1),))
            feed.follow_record(added_again)
            await target.tell(DurableTold(asked.channel, sent.entry.watermark))
            await trio.sleep(0.1)
            after = feed.targets.get(TARGET)

    assert before.heard is not None
    assert after is not before
    assert after is None or (after.heard, after.is_told) == (None, False)
