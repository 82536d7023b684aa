"""Links that are cut, slow or capped, mirrors that take nothing, and what is told of them."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import geolog
from geolog.partition.mirror_entry import MirrorEntry
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.ids import EntryId, Sequence
from geolog.protocol.relay_report import LinkState
from geolog.wire.limits import DOCUMENT_BYTES_MAX, INT64_MAX
from relay.bridge import home_bridge, read_ahead
from relay.bridge.bridge_ends import BridgeConfig, BridgeEnds
from relay.bridge.heard_tails import HeardTails
from relay.bridge.home_bridge import HomeBridge
from relay.bridge.home_feed import FeedConfig
from relay.bridge.home_log import HomeLog
from relay.protocol.bridge_messages import BridgeHeartbeat, RelayedEntry, TailTold
from relay.protocol.outgoing import OutgoingChannel
from relay.protocol.outgoing_link import LinkBounds, LinkBucket
from relay.protocol.standby_buffer import BufferBounds
from relay.wire.bridge import encode_bridge
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_bridges import open_home, open_target, wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    open_mirror,
    relay,
)
from tests.pure.whole.test_mirrors import forged
from topology.errors import UnavailableError

HOME_RELAY, TARGET_RELAY = f"relay-{HOME}-1", f"relay-{TARGET}-1"


def noise(size_bytes: int, seed: int = 7) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size_bytes)


async def append(log: geolog.Log, *values: bytes, stream: str = STREAM) -> None:
    async with log.open_writer(stream) as writer:
        await append_each(writer, list(values))


def slow_down(cluster: InProcessCluster, host: str, bytes_per_s: int) -> None:
    """Let a host receive so much on each of its connections."""
    network, step_s = cluster.network, 0.1
    network.receive_delay_s = lambda one: step_s if one == host else 0.0
    network.receive_bytes_max = lambda one: (
        int(bytes_per_s * step_s) if one == host else 1 << 20
    )


@asynccontextmanager
async def states_shown(ends: BridgeEnds) -> AsyncIterator[list[LinkState]]:
    """The states of the stream's link that are shown, one after the other."""
    shown: list[LinkState] = []

    async def look() -> None:
        while True:
            for one in ends.reports.report().streams:
                if shown[-1:] != [one.state]:
                    shown.append(one.state)
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        yield shown
        nursery.cancel_scope.cancel()


async def lose_the_line(cluster: InProcessCluster) -> None:
    cluster.network.cut(HOME_RELAY, TARGET_RELAY)
    await trio.sleep(30)
    cluster.network.mend(HOME_RELAY, TARGET_RELAY)


async def freeze_the_target(cluster: InProcessCluster) -> None:
    cluster.network.darken(TARGET_RELAY)
    await trio.sleep(30)
    cluster.network.lighten(TARGET_RELAY)


async def stop_the_nodes(cluster: InProcessCluster) -> None:
    await cluster.kill_region(TARGET)
    await trio.sleep(150)
    await cluster.restart_region(TARGET)


@pytest.mark.parametrize("harm", [lose_the_line, freeze_the_target, stop_the_nodes])
async def test_a_link_that_will_go_on_by_itself_is_shown_as_down_and_never_as_stopped(
    harm: Callable[[InProcessCluster], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log)
        await append(log, b"before")
        await wait_equal(log)
        await trio.sleep(5)
        async with states_shown(home) as shown, trio.open_nursery() as nursery:
            nursery.start_soon(harm, cluster)
            for number in range(40):
                await append(log, b"%d" % number)
                await trio.sleep(4)
            await trio.sleep(60)
        await wait_equal(log)
        [reported] = home.reports.report().streams

    assert LinkState.DOWN in shown
    assert LinkState.STOPPED not in shown
    assert shown[-1] is LinkState.LIVE
    assert reported.alarm is None


async def test_a_link_that_needs_an_operator_is_shown_as_stopped_and_its_mirror_not_believed(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as there,
    ):
        await create(log)
        await append(log, *[b"%d" % number for number in range(5)])
        await relay(there, count=3)
        stored = await entries_of(log, await home_of(log))
        async with open_mirror(there) as mirror:
            mirror.push(MirrorEntry.of(forged(stored[3].data), previous=stored[2].mark))
        async with open_home(cluster) as home, open_target(cluster):
            await trio.sleep(15)
            assert home.feeds is not None
            [feed] = home.feeds.by_name.values()
            standing = feed.standing(TARGET)
            [reported] = home.reports.report().streams

    assert reported.state is LinkState.STOPPED
    assert "the mirror ends with" in (reported.alarm or "")
    assert (standing.heard, standing.is_told) == (None, False)
    assert reported.lag_records == 5, "nothing of it is known to be a copy"


@pytest.mark.parametrize(("count", "size_bytes"), [(20, 50_000), (2, 700_000)])
async def test_a_link_that_takes_longer_for_a_message_than_its_patience_still_delivers(
    count: int, size_bytes: int, autojump_clock: MockClock
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        await create(log, segment_bytes=8 << 20)
        await append(log, *[noise(size_bytes, seed) for seed in range(count)])
        await trio.sleep(2)
        slow_down(cluster, TARGET_RELAY, 20_000)
        async with open_target(cluster) as target:
            await trio.sleep(60)
            [after] = home.reports.report().streams
            await trio.sleep(30)
            [end] = home.reports.report().streams
            failures = home.failures + target.failures

    assert (after.durable_records or 0) > 0
    assert end.durable_records == count
    assert end.stalls_count == 0
    assert failures == []


async def test_a_cap_holds_back_no_heartbeat_and_a_new_bridge_is_no_way_around_it(
    autojump_clock: MockClock,
) -> None:
    cap, size_bytes, count = 50_000, 900_000, 4
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.config = BridgeConfig(link=LinkBounds(bytes_per_s_max=cap))
        await create(log, segment_bytes=8 << 20)
        await append(log, *[noise(size_bytes, seed) for seed in range(count)])
        began_s = trio.current_time()
        async with open_target(cluster) as target:
            await trio.sleep(25)
            early = [*home.failures, *target.failures]
        async with open_target(cluster, 2) as target:
            with trio.fail_after(120):
                while True:
                    [reported] = home.reports.report().streams
                    if reported.durable_records == count:
                        break
                    await trio.sleep(0.1)
            took_s = trio.current_time() - began_s
            late = target.failures

    assert early == late == []
    least_s = (count - 1) * size_bytes / cap
    assert least_s <= took_s <= 1.1 * least_s + 2


async def test_heartbeats_of_many_partitions_leave_a_slow_link_to_entries(
    autojump_clock: MockClock,
) -> None:
    """The ends of these logs alone take longer than the second between two heartbeats."""
    partitions, bytes_per_s, count = 30, 1_500, 60
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log, partitions=partitions)
        async with log.open_writer(STREAM) as writer:
            for number in range(partitions):
                await writer.append(b"first", key=b"%d" % number)
        await trio.sleep(10)
        [bridge] = home.served
        assert bridge.link.unanswered_bytes == 0
        cluster.network.pipe_bytes_max = 8 << 10
        slow_down(cluster, TARGET_RELAY, bytes_per_s)
        async with log.open_writer(STREAM) as writer:
            for number in range(count):
                await writer.append(noise(1000, number), key=b"%d" % number)
        with trio.fail_after(4 * count * 1000 / bytes_per_s):
            while True:
                reported = home.reports.report().streams
                if not any(one.lag_records for one in reported):
                    break
                await trio.sleep(2)
        stalls_count = sum(one.stalls_count or 0 for one in reported)
        failures = home.failures
        is_same = home.served == [bridge]

    assert (stalls_count, failures, is_same) == (0, [], True)


async def test_entries_go_on_at_once_though_the_cap_ends_while_the_bridge_looks(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_s = LinkBucket.wait_s

    def wait_s_slowly(bucket: LinkBucket, now_s: float) -> float:
        found = wait_s(bucket, now_s)
        if found > 0 and not any(one.link.unanswered_bytes for one in home.served):
            autojump_clock.jump(found + 0.001)  # And no answer is due that would wake it.
        return found

    size_bytes, count = 5_000, 20
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.config = BridgeConfig(link=LinkBounds(bytes_per_s_max=100_000))
        await create(log)
        async with log.open_writer(STREAM) as writer:
            for seed in range(count):
                await writer.append(noise(size_bytes, seed))
        monkeypatch.setattr(LinkBucket, "wait_s", wait_s_slowly)
        began_s = trio.current_time()
        async with open_target(cluster):
            await wait_equal(log)
            took_s = trio.current_time() - began_s

    assert took_s < 3 * count * size_bytes / 100_000


async def test_a_mirror_that_cannot_be_written_holds_up_no_other_of_its_link(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_lac, is_stuck = MirrorWriter.on_lac, True

    def on_lac_of_others(mirror: MirrorWriter, lac: EntryId) -> None:
        if str(mirror.name.stream) != "shop/stuck" or not is_stuck:
            on_lac(mirror, lac)

    monkeypatch.setattr(MirrorWriter, "on_lac", on_lac_of_others)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log)
        await log.create_stream("shop/stuck", mode="regional", home=HOME, relay_to=[TARGET])
        await append(log, b"before")
        await wait_equal(log)
        await append(log, *[noise(100_000)] * 30, stream="shop/stuck")  # Over the window.
        lags_s: list[float] = []
        states: set[LinkState] = set()
        with trio.move_on_after(55):
            async with log.open_writer(STREAM) as writer:
                for number in range(250):
                    await writer.append(b"%d" % number)
                    await trio.sleep(0.2)
                    for one in home.reports.report().streams:
                        if one.stream == STREAM:
                            lags_s.append(one.lag_s or 0.0)
                            states.add(one.state)
        stuck = [one for one in home.reports.report().streams if one.stream != STREAM]
        failures = home.failures

    assert len(lags_s) > 225
    assert max(lags_s) < 6, "while it is found out, which takes a few heartbeats"
    assert sum(lag_s > 1 for lag_s in lags_s) < 25
    assert not states & {LinkState.DOWN, LinkState.STOPPED}
    assert [(one.state, (one.stalls_count or 0) >= 1) for one in stuck] == [
        (LinkState.DOWN, True)
    ]
    assert "although the link is whole" in (stuck[0].alarm or "")
    assert failures == [], "the link was not dialled again"


def read_ahead_bytes(bridge: HomeBridge) -> int:
    """Bytes that all channels have read and not sent, counted one by one."""
    cores = [bridge.link.channel(number) for number in range(1, 100)]
    return sum(core.fetched_bytes for core in cores if core is not None)


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_what_is_read_ahead_for_all_partitions_together_is_bounded(
    is_sealed: bool,  # noqa: FBT001 - A parameter of the test.
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions, ahead_bytes, record_bytes = 16, 500_000, 50_000
    monkeypatch.setattr(read_ahead, "READERS_MAX", 2)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.config = BridgeConfig(
            link=LinkBounds(ahead_bytes_max=ahead_bytes),
            feed=FeedConfig(buffer=BufferBounds(entries_max=1)),
        )
        await create(log, partitions=partitions)
        async with log.open_writer(STREAM) as writer:
            for number in range(10 * partitions):
                await writer.append(noise(record_bytes, number), key=b"%d" % number)
        if is_sealed:
            await log.seal_stream(STREAM)
        await trio.sleep(2)
        slow_down(cluster, TARGET_RELAY, 2_000_000)
        most_bytes = 0
        async with open_target(cluster):
            with trio.fail_after(300):
                while any(one.lag_records for one in home.reports.report().streams):
                    for bridge in home.served:
                        assert bridge.ahead_bytes == read_ahead_bytes(bridge)
                        most_bytes = max(most_bytes, bridge.ahead_bytes)
                    await trio.sleep(0.02)
            [bridge] = home.served
            left_bytes, fetched_count = bridge.ahead_bytes, bridge.fetched_count

    assert fetched_count > 5 * partitions
    of_one_bytes = 20 * record_bytes
    assert 0 < most_bytes < ahead_bytes + 2 * of_one_bytes, "of 8 MB in all"
    assert left_bytes == 0


async def test_the_ends_of_very_many_logs_are_told_in_parts(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = TailTold(INT64_MAX, Sequence(INT64_MAX), INT64_MAX, INT64_MAX)
    beat = BridgeHeartbeat(INT64_MAX, (largest,) * home_bridge.TAILS_MAX)
    assert len(encode_bridge(beat)) < DOCUMENT_BYTES_MAX

    monkeypatch.setattr(home_bridge, "TAILS_MAX", 2)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_target(cluster) as target,
    ):
        target.heard = HeardTails(cluster.now_us)
        await create(log, partitions=5)
        async with log.open_writer(STREAM) as writer:
            for number in range(50):
                await writer.append(b"v", key=b"%d" % number)
        await trio.sleep(8)
        told = {one.partition: one.sequence_next for one in target.heard.all()}

    assert sorted(told) == [0, 1, 2, 3, 4]
    assert sum(told.values()) == 50


async def test_partitions_without_records_leave_the_ends_of_others_told_each_second(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_bridge, "_BEAT_BYTES_LEAST", 100)  # One end, at first.
    ages_s: list[float] = []
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster),
        open_target(cluster) as target,
    ):
        target.heard = HeardTails(cluster.now_us)
        await create(log, partitions=16)
        async with log.open_writer(STREAM) as writer:
            for number in range(6):
                await writer.append(b"v", key=b"%d" % number)
        await trio.sleep(15)
        for _ in range(20):
            await trio.sleep(0.5)
            ages_s += [one.heard_ago_s or 0.0 for one in target.heard.all()]
        told_count = len(target.heard.all())

    assert 2 < told_count < 8
    assert max(ages_s) < 2


async def test_what_the_buffer_has_is_sent_though_the_log_cannot_be_read_any_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_entries, failed_count, left_count = HomeLog.next_entries, 0, 5

    async def next_entries_for_a_while(log: HomeLog) -> list[RelayedEntry]:
        """Read up to the older half of the buffer; what follows cannot be read."""
        nonlocal failed_count, left_count
        if left_count:
            entries = (await next_entries(log))[:left_count]
            left_count -= len(entries)
            return entries
        await trio.sleep(3)  # All that was read is sent and durable.
        failed_count += 1
        raise UnavailableError("the nodes of the home are away")

    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.config = BridgeConfig(feed=FeedConfig(buffer=BufferBounds(entries_max=6)))
        await create(log)
        await trio.sleep(2)
        await append(log, *(b"%d" % number for number in range(10)))
        await trio.sleep(2)
        monkeypatch.setattr(HomeLog, "next_entries", next_entries_for_a_while)
        async with open_target(cluster):
            await trio.sleep(10)
            [reported] = home.reports.report().streams

    assert (failed_count, left_count) == (1, 0)
    assert (reported.lag_records, reported.state) == (0, LinkState.LIVE)


@pytest.mark.parametrize("off_s", [-3600, 0, 3600])
async def test_a_lag_is_told_too_large_rather_than_too_small_whatever_the_relays_clock_says(
    off_s: int, autojump_clock: MockClock
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.now_us = lambda: cluster.now_us() + off_s * 1_000_000
        await create(log)
        async with open_target(cluster):
            await append(log, b"before")
            await wait_equal(log)
            await trio.sleep(3)
            [live] = home.reports.report().streams
        await append(log, b"lacking")
        await trio.sleep(20)
        [away] = home.reports.report().streams

    assert (live.lag_records, live.lag_s) == (0, 0.0)
    assert away.lag_records == 1
    assert (away.lag_s or 0) >= 19.9


class _Fetched:
    """A channel that has read so many bytes."""

    def __init__(self, fetched_bytes: int = 0) -> None:
        self.fetched_bytes = fetched_bytes


async def test_a_read_that_ends_after_the_next_one_began_leaves_that_one_counted() -> None:
    ahead = read_ahead.LogsReadAhead(100)
    channel = cast("OutgoingChannel", _Fetched())
    begun = trio.Event()

    async def read_before() -> None:
        async with ahead.reading(channel):
            await begun.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_before)
        await wait_all_tasks_blocked()
        async with ahead.reading(channel):
            begun.set()
            await wait_all_tasks_blocked()
            cast("_Fetched", channel).fetched_bytes = 60
            ahead.count(channel)
            counted_bytes = ahead.bytes

    assert (counted_bytes, ahead.bytes) == (60, 0)


async def test_turns_to_read_go_round_although_some_logs_are_at_their_ends(
    autojump_clock: MockClock,
) -> None:
    ahead = read_ahead.LogsReadAhead(100)
    had_turns: list[int] = []

    async def read(number: int) -> None:
        channel = cast("OutgoingChannel", _Fetched())
        async with ahead.reading(channel), ahead.turn(channel):
            had_turns.append(number)
            await trio.sleep_forever()  # At the end of its log.

    async with trio.open_nursery() as nursery:
        for number in range(3 * read_ahead.READERS_MAX):
            nursery.start_soon(read, number)
        for _ in range(5):
            await trio.sleep(1)
            ahead.look()
        nursery.cancel_scope.cancel()

    assert sorted(had_turns) == list(range(3 * read_ahead.READERS_MAX))


async def test_nobody_gets_a_turn_while_all_together_have_read_too_much() -> None:
    ahead = read_ahead.LogsReadAhead(100)
    full, other = (cast("OutgoingChannel", _Fetched(size)) for size in (101, 0))
    had_turn = trio.Event()

    async def read() -> None:
        async with ahead.reading(other), ahead.turn(other):
            had_turn.set()

    async with trio.open_nursery() as nursery, ahead.reading(full):
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert not had_turn.is_set()
        cast("_Fetched", full).fetched_bytes = 100
        ahead.count(full)
        await had_turn.wait()


async def test_logs_that_answer_slowly_are_all_read_though_many_want_a_turn(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, next_entries = 12, HomeLog.next_entries

    async def next_entries_slowly(log: HomeLog) -> list[RelayedEntry]:
        await trio.sleep(1.5)
        return await next_entries(log)

    monkeypatch.setattr(read_ahead, "READERS_MAX", 2)
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
    ):
        home.config = BridgeConfig(feed=FeedConfig(buffer=BufferBounds(entries_max=1)))
        await create(log, partitions=partitions)
        async with log.open_writer(STREAM) as writer:
            for number in range(6 * partitions):
                await writer.append(b"%d" % number, key=b"%d" % number)
        await trio.sleep(2)
        monkeypatch.setattr(HomeLog, "next_entries", next_entries_slowly)
        async with open_target(cluster):
            with trio.fail_after(60):
                while True:
                    reported = home.reports.report().streams
                    if not any(one.lag_records for one in reported):
                        break
                    await trio.sleep(1)
            [bridge] = home.served

    assert bridge.fetched_count > partitions
