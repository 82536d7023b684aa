"""Feeds of relayed streams in one process: shared buffers, standbys, and reports of links."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.relay_report import LinkState, RelayedStreamReport, RelayReport
from geolog.transport.websocket import WebSockets
from geolog.wire.relay_report import (
    REPORT_BYTES_MAX,
    REPORT_PATH,
    SUBPROTOCOL_REPORT,
    decode_report,
    encode_report,
)
from relay.bridge.home_feed import FeedConfig, HomeFeed, HomeFeeds
from relay.bridge.home_log import HomeLog
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.logs import HomeLog as HomeLogOfEntries
from tests.pure.relay.test_bridges import (
    address_of,
    open_ends,
    open_home,
    open_target,
    wait_equal,
)
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create, record_of
from topology.errors import InvalidArgumentError


@asynccontextmanager
async def open_feeds(
    cluster: InProcessCluster, config: FeedConfig | None = None
) -> AsyncIterator[HomeFeeds]:
    """A standby of the home: it keeps feeds, and no bridge."""
    async with cluster.open_client(HOME, host="standby") as log, trio.open_nursery() as nursery:
        feeds = HomeFeeds(region=HOME, log=log, now_us=cluster.now_us, config=config)
        nursery.start_soon(feeds.run)
        yield feeds
        nursery.cancel_scope.cancel()


async def report_from(cluster: InProcessCluster, relay_epoch: int = 1) -> RelayReport:
    async with WebSockets(cluster.network.transport("operator")).open(
        address_of(relay_epoch),
        REPORT_PATH,
        subprotocols=(SUBPROTOCOL_REPORT,),
        message_bytes_max=REPORT_BYTES_MAX,
    ) as socket:
        return decode_report(await socket.receive())


async def one_stream(cluster: InProcessCluster) -> RelayedStreamReport:
    [found] = (await report_from(cluster)).streams
    return found


def noise(size_bytes: int) -> bytes:
    """Bytes that do not compress."""
    return random.Random(7).randbytes(size_bytes)


async def wait_begun(feeds: HomeFeeds, count: int = 1) -> None:
    with trio.fail_after(30):
        while True:
            if [one.has_begun for one in feeds.by_name.values()] == [True] * count:
                return
            await trio.sleep(0.05)


async def append(log: geolog.Log, *values: bytes) -> None:
    async with log.open_writer(STREAM) as writer:
        await append_each(writer, list(values))


async def test_a_report_follows_a_link_from_connecting_to_live_and_down(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
    ):
        await create(log)
        async with open_target(cluster):
            await append(log, *[b"%d" % number for number in range(10)])
            await wait_equal(log)
            await trio.sleep(5)
            live = await one_stream(cluster)
        await append(log, b"unseen", b"too")
        await trio.sleep(10)
        down = await report_from(cluster)

    assert (live.state, live.durable_records, live.tail_records) == (LinkState.LIVE, 10, 10)
    assert (live.lag_records, live.lag_bytes, live.lag_s) == (0, 0, 0)
    assert live.is_covered
    [left] = down.streams
    assert (left.state, left.durable_records, left.tail_records) == (LinkState.DOWN, 10, 12)
    assert left.lag_records == 2
    assert left.lag_bytes is not None
    assert left.lag_bytes > 8
    assert left.lag_s is not None
    assert 9 < left.lag_s < 12
    assert left.is_covered, "what the target lacks is in the buffer"
    assert [(one.before, one.after) for one in down.events][-1] == ("live", "down")


async def test_a_paused_target_is_sent_nothing_and_gets_the_rest_when_it_is_resumed(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log)
        await append(log, b"before")
        await wait_equal(log)
        paused = await log.pause_relay(STREAM, targets=[TARGET])
        await trio.sleep(3)
        await append(log, *[b"%d" % number for number in range(10)])
        await log.truncate_stream(STREAM, before=geolog.LATEST)
        await trio.sleep(20)
        held = await one_stream(cluster)
        resumed = await log.resume_relay(targets=[TARGET])
        await wait_equal(log)
        await trio.sleep(5)
        live = await one_stream(cluster)

    assert (paused, resumed) == ({STREAM: [TARGET]}, {STREAM: []})
    assert (held.state, held.durable_records, held.lag_records) == (LinkState.PAUSED, 1, 10)
    assert held.lag_s is not None
    assert held.lag_s > 19
    assert (live.state, live.durable_records, live.lag_records) == (LinkState.LIVE, 11, 0)


async def test_what_cannot_be_paused_is_refused_with_what_can(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        await log.create_stream("shop/alone", mode="regional", home=HOME)
        refused: list[str] = []
        for name, targets in [
            (STREAM, [HOME]),
            ("shop/alone", None),
            (None, [HOME]),
            (None, ["atlantis"]),
            (None, None),
        ]:
            with pytest.raises(InvalidArgumentError) as error:
                await log.pause_relay(name, targets=targets)
            refused.append(str(error.value))

    assert refused[0] == f"{STREAM} is not relayed to {HOME}; its targets are {TARGET}"
    assert refused[1] == "shop/alone is not relayed: it has no targets to pause"
    assert refused[2] == f"no stream is relayed to {HOME}; streams are relayed to {TARGET}"
    assert refused[3] == f"no stream is relayed to atlantis; streams are relayed to {TARGET}"
    assert refused[4] == "name a stream, or the regions that are its targets"


async def test_a_target_that_was_removed_is_not_paused_when_it_is_added_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log)
        await log.pause_relay(STREAM)
        await log.update_stream(STREAM, relay_to=[])
        await log.update_stream(STREAM, relay_to=[TARGET])
        await append(log, b"after")

        assert await wait_equal(log) > 0


async def test_the_lag_of_a_target_that_never_came_grows(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
    ):
        await create(log)
        await trio.sleep(2)
        await append(log, *[noise(100_000)] * 60)
        reports = []
        for _ in range(4):
            await trio.sleep(3)
            reports.append(await one_stream(cluster))

    assert {one.durable_records for one in reports} == {None}
    assert {one.lag_records for one in reports} == {60}, "beyond any bound of reading ahead"
    assert (reports[-1].lag_bytes or 0) >= 6_000_000
    lags_s = [one.lag_s or 0 for one in reports]
    assert lags_s == sorted(set(lags_s))
    assert lags_s[-1] > 11
    assert reports[-1].state is LinkState.DOWN


async def test_a_target_that_is_further_behind_than_the_buffer_is_served_from_the_log(
    autojump_clock: MockClock,
) -> None:
    small = FeedConfig(buffer=BufferBounds(entries_max=5))
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_feeds(cluster, small) as feeds,
        open_ends(cluster, HOME, 1) as ends,
        trio.open_nursery() as nursery,
    ):
        ends.feeds = feeds
        listener = await cluster.network.transport(address_of(1).host).listen(address_of(1))
        nursery.start_soon(ends.serve, listener)
        await create(log, segment_bytes=64 << 10)
        await wait_begun(feeds)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            for number in range(60):
                await writer.append(b"%d" % number * 1000)
        [feed] = feeds.by_name.values()
        await trio.sleep(1)
        assert feed.buffer.coverage.entries_count == 5
        assert not feed.covers(TARGET)

        async with open_target(cluster):
            assert await wait_equal(log) > 60
            await trio.sleep(3)
            assert [bridge.alarms for bridge in ends.served] == [[]]
            assert feed.covers(TARGET)
        nursery.cancel_scope.cancel()


async def test_a_standby_that_takes_over_replays_from_its_buffer(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_feeds(cluster) as feeds,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        await wait_begun(feeds)
        async with open_home(cluster), open_target(cluster):
            await append(log, *[b"%d" % number for number in range(20)])
            await wait_equal(log)
        await append(log, *[b"missed %d" % number for number in range(20)])
        await trio.sleep(1)
        async with open_ends(cluster, HOME, 2) as ends:
            ends.feeds = feeds
            address = address_of(2)
            listener = await cluster.network.transport(address.host).listen(address)
            nursery.start_soon(ends.serve, listener)
            async with open_target(cluster, 2, home_epoch=2):
                await wait_equal(log)
                await trio.sleep(1)
                [bridge] = ends.served
                [progress] = bridge.progress()
                assert progress.replayed_count >= 1
                assert bridge.fetched_count == 0, "nothing was read from the log again"
                [found] = ends.reports.report().streams
                assert (found.lag_records, found.durable_records) == (0, 40)
            nursery.cancel_scope.cancel()


async def test_all_buffers_together_stay_below_their_bound(autojump_clock: MockClock) -> None:
    config = FeedConfig(buffered_bytes_max=200_000)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_feeds(cluster, config) as feeds,
    ):
        await create(log, partitions=3)
        await wait_begun(feeds, 3)
        async with log.open_writer(STREAM) as writer:
            for _ in range(60):
                await append_each(writer, [noise(9_000)] * 3)
        await trio.sleep(2)
        found = [feed.buffer for feed in feeds.by_name.values()]

    assert feeds.buffered_bytes == sum(one.bytes_count for one in found)
    assert 100_000 < feeds.buffered_bytes <= 200_000 + 2 * 30_000


async def test_entries_that_wait_for_their_place_count_in_the_bound_of_all_buffers(
    autojump_clock: MockClock,
) -> None:
    bytes_max, most_bytes = 20_000, 0
    entries = HomeLogOfEntries()
    for _ in range(12):
        entries.append(payload=noise(1_000))
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        await create(log, partitions=5)
        record = await record_of(log)
        feeds = HomeFeeds(
            region=HOME,
            log=log,
            now_us=cluster.now_us,
            config=FeedConfig(buffered_bytes_max=bytes_max),
        )
        made = [
            HomeFeed(name, record, feeds, StandbyBuffer(None, BufferBounds()))
            for name in record.partition_names()
        ]
        for feed in made:
            for entry in entries.entries[1:]:  # The reader has not brought the first one.
                feed.on_multicast(entry.encoded)
                most_bytes = max(most_bytes, sum(one.held_bytes for one in made))
                assert feeds.buffered_bytes == sum(one.held_bytes for one in made)
        refused_count = sum(one.placing.refused_count for one in made)
        for feed in made:
            feeds.forget(feed)

    assert 15_000 < most_bytes <= bytes_max + 2_000
    assert refused_count > 0
    assert feeds.buffered_bytes == 0


async def test_entries_that_were_read_before_a_buffer_began_further_back_are_read_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_entries = HomeLog.next_entries
    filled: list[str] = []

    async def next_before_the_fill(self: HomeLog) -> list[RelayedEntry]:
        """Let the buffer begin elsewhere when the reader has its answer, but not its turn."""
        entries = await next_entries(self)
        if len(feed.buffer) >= 2 and not filled:
            feed.fill_from(None)
            filled.append("further back")
        return entries

    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_feeds(cluster) as feeds,
    ):
        await create(log)
        await wait_begun(feeds)
        [feed] = feeds.by_name.values()
        monkeypatch.setattr(HomeLog, "next_entries", next_before_the_fill)
        for number in range(6):
            await append(log, b"%d" % number)
        await trio.sleep(5)

    assert filled == ["further back"]
    assert feed.buffer.begin is None
    assert feed.tail_sequence == 6


async def test_a_stream_that_ends_to_be_relayed_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_feeds(cluster) as feeds,
    ):
        await create(log)
        await wait_begun(feeds)
        await append(log, b"some", b"records")
        await trio.sleep(2)
        assert feeds.buffered_bytes > 0
        await log.update_stream(STREAM, relay_to=[])
        await trio.sleep(2)

        assert (feeds.by_name, feeds.buffered_bytes) == ({}, 0)


def test_reports_come_back_as_they_were_sent() -> None:
    report = RelayReport(
        region=HOME, coordinator="relay-1", standby=None, relay_epoch=4, streams=()
    )
    assert decode_report(encode_report(report)) == report


async def test_an_idle_log_is_relayed_and_its_lag_told_though_its_last_segment_is_empty(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        await append(log, b"a", b"b", b"c")
        async with log.open_writer(STREAM):
            pass  # Another owner: a segment without a record.
        async with open_home(cluster):
            await trio.sleep(5)
            waiting = await one_stream(cluster)
            async with open_target(cluster):
                await wait_equal(log)

    assert (waiting.tail_records, waiting.lag_records) == (3, 3)
