"""Mirrors that cannot go on are begun again, with all that their home has left."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.reading.read_range import Begin
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import open_walk
from geolog.metadata.paths import ClusterPaths
from geolog.partition.mirror_entry import MirrorEntry
from geolog.protocol.ids import Sequence
from geolog.protocol.read_end import PartitionEnd
from relay.bridge.bridge_ends import BridgeEnds
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import open_home, open_target, wait_equal
from tests.pure.relay.test_evictions import Writing, wait_equal_behind
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    mirror_of,
    open_mirror,
    record_of,
    relay,
    rows_of,
)
from tests.pure.whole.test_failover import values
from tests.pure.whole.test_mirrors import forged


async def test_a_mirror_that_differs_is_sent_everything_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        await Writing(home).append(5)
        await relay(log, count=3)
        stored = await entries_of(log, await home_of(log))
        async with open_mirror(log) as mirror:
            mirror.push(MirrorEntry.of(forged(stored[3].data), previous=stored[2].mark))
        async with open_home(cluster) as ends, open_target(cluster):
            alarm = await first_alarm(ends)
            [begun] = await home.resync_relay(STREAM, target=TARGET)
            await wait_equal(home)
            report = await home.verify_stream(STREAM)

    assert "the mirror ends with" in alarm
    assert (begun.region, begun.begins, begun.gap_count) == (TARGET, 0, 0)
    assert report.is_good


async def test_records_that_nobody_has_any_more_need_consent(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home, segment_bytes=64 << 10)
        writing = Writing(home)
        await writing.append(2)
        await relay(log)
        await writing.append(10)
        trims = home.access.partitions.trims
        await trims.move(await home_of(home), Sequence(9), now_us=1)
        await trims.drop_trimmed(await home_of(home))
        async with open_home(cluster) as ends, open_target(cluster):
            alarm = await first_alarm(ends)
            with pytest.raises(
                geolog.ConflictError, match=r"records 2 to \d any more, and eu-west never got"
            ):
                await home.resync_relay(STREAM, target=TARGET)
            [begun] = await home.resync_relay(STREAM, target=TARGET, accept_gap=True)
            await wait_equal_behind(home)
            async with log.open_reader(STREAM, start=geolog.AtSequence(1)) as reader:
                items = [one async for one in reader.items()]
        trim = await trims.read_latest(await mirror_of(home))

    assert "trimmed" in alarm
    assert 2 < begun.begins <= 9
    assert trim.gap is not None
    assert (trim.gap.first, trim.gap.end) == (2, begun.begins)
    gaps = [one for one in items if isinstance(one, geolog.Gap)]
    assert [(one.from_sequence, one.reason.value) for one in gaps] == [
        (1, "trimmed"),
        (2, "evicted"),
    ]
    values = [one.value for one in items if isinstance(one, geolog.Record)]
    assert values == writing.values[begun.begins :]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_mirror_ended_behind_its_last_record_even_if_that_is_its_only_one(
    count: int, autojump_clock: MockClock
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        await Writing(home).append(count)
        await relay(log)
        [begun] = await home.resync_relay(STREAM, target=TARGET)

    assert (begun.ended, begun.begins) == (count, 0)


async def test_a_relay_that_takes_the_mirror_over_meanwhile_is_fenced_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        await Writing(home).append(4)
        await relay(log)
        mirror, takeover = await mirror_of(log), log.partition_opener.upkeep.takeover
        changed = trio.Event()
        before = await takeover.partitions.owners.read(mirror, changed=changed)

        async def take_it_too() -> None:
            await changed.wait()
            await takeover.owners.take(mirror, "a relay")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_it_too)
            [begun] = await home.resync_relay(STREAM, target=TARGET)
        after = await takeover.partitions.owners.read_latest(mirror)
        rows = await rows_of(home, mirror)

    assert after.record.epoch == before.record.epoch + 3
    assert (begun.begins, rows) == (0, [])


async def test_opening_a_mirror_whose_nodes_are_away_ends_and_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        await Writing(home).append(4)
        await relay(log)
        await cluster.kill_region(TARGET)
        opening = open_mirror(log)
        with (
            pytest.raises(geolog.UnavailableError, match="cannot be taken over"),
            trio.fail_after(60),
        ):
            await opening.__aenter__()
        await cluster.restart_region(TARGET)
        async with open_mirror(log) as mirror:
            watermark = mirror.watermark

    assert watermark is not None
    assert watermark.sequence_next == 4


async def test_a_reader_that_was_further_is_told_to_begin_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(home)
        await Writing(home).append(4)
        await wait_equal(home)
        async with log.open_reader(STREAM, follow=True) as reader:
            seen = [await anext(reader) for _ in range(4)]
            await home.resync_relay(STREAM, target=TARGET)
            with pytest.raises(geolog.ConflictError, match="begun again at sequence 0"):
                await anext(reader)
        await wait_equal(home)

    assert [one.sequence for one in seen] == [0, 1, 2, 3]


async def test_a_reader_of_a_mirror_that_is_begun_again_is_not_told_that_data_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        for _ in range(3):
            await Writing(home).append(2)
        await relay(log)
        scan = log._scan(await record_of(log), await mirror_of(log))  # noqa: SLF001
        end = await scan.end()
        await home.resync_relay(STREAM, target=TARGET)  # No relay sends it anything.
        with pytest.raises(geolog.ConflictError, match="was begun again while it was read"):
            async with open_walk(scan, Begin(), end) as walk:
                await walk.next_chunk()
        found = await values(log)

    assert len(found) == 6


async def walk_to(scan: PartitionScan, end: PartitionEnd) -> None:
    async with open_walk(scan, Begin(), end) as walk:
        while await walk.next_chunk() is not None:
            pass


async def test_a_mirror_that_lost_its_last_rows_is_read_as_far_and_has_no_end_after_that(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        for _ in range(3):
            await Writing(home).append(2)
        await relay(log)
        mirror = await mirror_of(log)
        scan = log._scan(await record_of(log), mirror)  # noqa: SLF001
        end = await scan.end()
        last = (await rows_of(home, mirror))[-1].row_number
        path = ClusterPaths("default").segment(mirror, last)
        async with cluster.store.open_session() as metadata:
            stored = await metadata.find(path)
            assert stored is not None
            await metadata.delete(path, stored.version)
        with pytest.raises(geolog.ConflictError, match=f"nothing from row {last} on"):
            await walk_to(scan, end)
        with pytest.raises(geolog.UnavailableError, match="could not be found"):
            await values(log)
        report = await home.verify_stream(STREAM)

    assert not report.is_good


async def test_while_a_mirror_is_empty_its_region_reads_at_home_and_all_is_verified(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        await Writing(home).append(4)
        await relay(log)
        await home.resync_relay(STREAM, target=TARGET)  # No relay sends it anything.
        rows = await rows_of(home, await mirror_of(home))
        async with log.open_reader(STREAM) as reader:
            origins = [one.origin async for one in reader]
        verified = await home.verify_stream(STREAM)
        scan = log._scan(await record_of(log), await mirror_of(log))  # noqa: SLF001
        end = await scan.end()
        async with open_walk(scan, Begin(), end) as walk:
            chunk = await walk.next_chunk()

    assert rows == []
    assert origins == [None] * 4
    assert verified.is_good
    assert [one.partition(" lacks ")[2] for one in verified.mirrors_behind] == ["4 records"]
    assert (end.sequence, end.is_emptied, chunk) == (0, True, None)


async def test_a_region_without_a_mirror_is_refused(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as home:
        await create(home)
        with pytest.raises(
            geolog.InvalidArgumentError, match="not relayed to 'mars'; its targets are eu-west"
        ):
            await home.resync_relay(STREAM, target="mars")


async def first_alarm(ends: BridgeEnds) -> str:
    """Why a channel of this home was stopped, once one is."""
    while True:
        with trio.fail_after(60):
            for bridge in ends.served:
                if bridge.alarms:
                    return bridge.alarms[0]
            await trio.sleep(0.1)
