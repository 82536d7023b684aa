"""Answers of targets: which of them a home believes, and what it shows of those that fail."""

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from relay.bridge.bridge_ends import BridgeEnds
from relay.bridge.home_feed import HomeFeed
from relay.protocol.bridge_messages import (
    AskWatermark,
    ChannelEnded,
    DurableTold,
    SendEntry,
    WatermarkTold,
)
from sim.in_process import InProcessCluster, open_in_process_cluster
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


async def refuse(
    cluster: InProcessCluster, home: BridgeEnds, codes: list[int]
) -> RelayedStreamReport:
    """Be a target that has a mirror without entries, and gives its channel up."""
    async with open_scripted_target(cluster) as target:
        for code in codes:
            asked = await target.hear(AskWatermark)
            await target.tell(
                WatermarkTold(asked.channel, None), ChannelEnded(asked.channel, code, "refused")
            )
        await target.hear(AskWatermark)
        await trio.sleep(4)
        [reported] = home.reports.report().streams
    return reported


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        ([400] * 3, LinkState.DOWN),
        ([403] * 3, LinkState.DOWN),
        ([413] * 3, LinkState.DOWN),
        ([503] * 3, LinkState.DOWN),
        ([517] * 3, LinkState.DOWN),
        ([409], LinkState.DOWN),
        ([409, 409], LinkState.STOPPED),
        ([409, 503, 409], LinkState.STOPPED),
        ([500], LinkState.STOPPED),
    ],
)
async def test_only_what_discarding_the_mirror_can_cure_is_shown_as_stopped(
    codes: list[int], state: LinkState, autojump_clock: MockClock
) -> None:
    """An older target calls it a conflict, once, if another bridge feeds its mirror now.

    Its place is taken back at once: the mirror may not be a copy.
    """
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        await append(log, b"one")
        await trio.sleep(3)
        reported = await refuse(cluster, home, codes)

    assert (reported.state, reported.alarm) == (state, "refused")
    assert (reported.heard_epoch is None) == (codes[0] in (409, 500))


async def test_what_was_sent_is_remembered_though_a_channel_ends_before_it_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log)
        await append(log, b"one", b"two")
        await trio.sleep(3)
        async with open_scripted_target(cluster) as target:
            asked = await target.hear(AskWatermark)
            await target.tell(WatermarkTold(asked.channel, None))
            sent = await target.hear(SendEntry)
            while sent.entry.watermark.sequence_next < 2:
                sent = await target.hear(SendEntry)
        await trio.sleep(1)
        async with open_scripted_target(cluster, relay_epoch=2) as unanswered:
            await unanswered.hear(AskWatermark)
        await append(log, b"three")
        await trio.sleep(1)
        async with open_scripted_target(cluster, relay_epoch=3) as last:
            asked = await last.hear(AskWatermark)
            await last.tell(WatermarkTold(asked.channel, sent.entry.watermark))
            await last.hear(SendEntry)
            [reported] = home.reports.report().streams

    assert reported.sent_records == 3
    assert reported.replayed_count == 0
