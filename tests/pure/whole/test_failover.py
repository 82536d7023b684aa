"""The home of a stream is lost: it goes on elsewhere, and what was lost is known and kept.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog import AtDlsn, AtSequence, Gap, GapReason, Record
from geolog.catalog.home_moves import HomeMoveConflictError
from geolog.client.log import LogConfig
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.stream_reader import open_stream_reader
from geolog.partition.home_failover import FailoverReport
from geolog.partition.mirror_entry import MirrorEntry
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.home_record import HomeState
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import (
    HOME,
    STREAM,
    TARGET,
    Durable,
    entries_of,
    record_of,
    relayed,
    rows_of,
)

MARS = "mars"
REGIONS = {HOME: 3, TARGET: 3, MARS: 3}


@attrs.frozen
class Site:
    """A cluster of three regions, with a client in each."""

    cluster: InProcessCluster
    east: geolog.Log
    west: geolog.Log
    mars: geolog.Log


@asynccontextmanager
async def open_site(*, partitions: int = 1) -> AsyncIterator[Site]:
    """Three regions, and a stream with its home in the first and mirrors in the others."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_in_process_cluster(REGIONS))
        east, west, mars = [
            await stack.enter_async_context(cluster.open_client(region)) for region in REGIONS
        ]
        await east.create_stream(
            STREAM, mode="regional", home=HOME, relay_to=[TARGET, MARS], partitions=partitions
        )
        yield Site(cluster, east, west, mars)


async def append(
    log: geolog.Log, numbers: range, *, writer_id: str | None = None, partition: int = 0
) -> None:
    async with log.open_writer(f"{STREAM}#{partition}", writer_id=writer_id) as writer:
        for number in numbers:
            await writer.append(b"%d" % number, seq=None if writer_id is None else number)


async def relay(log: geolog.Log, count: int | None = None, *, partition: int = 0) -> None:
    """Bring the log in the client's region `count` entries further, or to the home's end."""
    record = await record_of(log)
    name = record.log_in(log.region, partition)
    entries = await entries_of(log, record.partition(partition))
    async with log.partition_opener.open_mirror(record, name, Durable()) as mirror:
        await push(mirror, relayed(entries, behind=mirror.watermark)[:count])


async def push(mirror: MirrorWriter, entries: Sequence[MirrorEntry]) -> None:
    for entry in entries:
        mirror.push(entry)
    await mirror.wait_durable()


async def values(log: geolog.Log, *, partition: int = 0) -> list[bytes]:
    async with log.open_reader(f"{STREAM}#{partition}") as reader:
        return [one.value async for one in reader]


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def reading_of(
    scan: PartitionScan, start: geolog.Bound, *, is_following: bool
) -> AbstractAsyncContextManager[geolog.Reader]:
    """Read with settings that may be old, from there to the end."""
    return open_stream_reader(
        [scan], start=start, stop=None, is_following=is_following, config=ReaderConfig()
    )


async def items_from(log: geolog.Log, start: geolog.Bound) -> list[Record | Gap]:
    async with log.open_reader(STREAM, start=start) as reader:
        return [one async for one in reader.items()]


async def test_a_lost_home_goes_on_elsewhere_and_what_it_had_more_is_kept_aside(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await relay(site.mars, 7)
        await site.cluster.kill_region(HOME)
        report = await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(100, 103))
        in_west = await values(site.west)
        await relay(site.mars)
        in_mars = await values(site.mars)
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        in_east = await values(site.east)
        kept = await site.west.list_divergences(STREAM)
        async with site.west.open_divergence(STREAM, kept[0].name) as reader:
            aside = [(one.value, one.sequence, one.epoch) async for one in reader]
        record = await record_of(site.west)
        (failover,) = await site.west.list_failovers(STREAM)

    assert (report.home, report.home_epoch, report.is_nothing_lost) == (TARGET, 2, False)
    assert report.fetched == ((0, MARS),)
    assert report.out_of_reach == (HOME,)
    assert report.ranges[0].from_sequence == 7
    assert (report.at_risk.records, report.at_risk.records_min) == (None, 3)  # No relay told.
    assert in_west == in_mars == in_east == numbered(0, 1, 2, 3, 4, 5, 6, 100, 101, 102)
    assert [(one.name, one.from_sequence, one.to_sequence) for one in kept] == [
        (f"{HOME}~2#0", 7, 10)
    ]
    assert aside == [(b"7", 7, 1), (b"8", 8, 1), (b"9", 9, 1)]
    assert (record.home, record.session_epoch) == (TARGET, 2)
    assert record.relay_to == (MARS, HOME)
    assert (failover.home_before, failover.home, failover.home_epoch) == (HOME, TARGET, 2)
    assert failover.ranges == report.ranges


async def _failed_over_while_open(site: Site) -> FailoverReport:
    """Fail over to the west while a writer at home is open, and has been answered ten times."""
    found: list[FailoverReport] = []

    async def write() -> None:
        async with site.east.open_writer(STREAM, writer_id="w") as writer:
            for number in range(10):
                await writer.append(b"%d" % number, seq=number)
            await relay(site.west, 4)
            found.append(await site.west.failover(STREAM))

    with pytest.raises(geolog.GeologError, match="moves to eu-west"):
        await write()
    return found[0]


async def test_nothing_is_lost_if_the_old_homes_nodes_answer(autojump_clock: MockClock) -> None:
    async with open_site() as site:
        report = await _failed_over_while_open(site)
        async with site.west.open_writer(STREAM, writer_id="w") as writer:
            repeated = await writer.append(b"9", seq=9)
            await writer.append(b"10", seq=10)
        found = await values(site.west)
        await relay(site.east)
        kept = await site.west.list_divergences(STREAM)
        record = await record_of(site.west)

    assert (report.home, report.is_nothing_lost, report.at_risk.records) == (TARGET, True, 0)
    assert repeated.sequence == 9
    assert found == numbered(*range(11))
    assert kept == []
    assert record.session_epoch == 1


async def test_a_mirror_that_missed_two_failovers_keeps_no_dead_branch(
    autojump_clock: MockClock,
) -> None:
    """East is lost, then west: mars was away, and has what east had when it was lost."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await relay(site.mars)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(MARS)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 26))
        await site.cluster.restart_region(HOME)
        await relay(site.east, 2)
        await site.cluster.kill_region(TARGET)
        second = await site.east.failover(STREAM, to=HOME)
        await append(site.east, range(30, 33))
        await site.cluster.restart_region(MARS)
        await site.cluster.restart_region(TARGET)
        await relay(site.mars)
        await relay(site.west)
        found = [await values(log) for log in (site.east, site.west, site.mars)]
        kept = {
            one.name: (one.from_sequence, one.to_sequence)
            for one in await site.west.list_divergences(STREAM)
        }

    assert second.home_epoch == 3
    assert found[0] == found[1] == found[2]
    assert found[0][:4] == numbered(0, 1, 2, 3)
    assert found[0][-3:] == numbered(30, 31, 32)
    fork = second.ranges[0].from_sequence
    assert kept[f"{HOME}~2#0"] == (4, 10)
    assert kept[f"{TARGET}~3#0"] == (fork, 10)
    assert kept[f"{MARS}~2#0"] == (4, 10)


async def test_each_partition_goes_on_behind_the_best_mirror_that_it_has_anywhere(
    autojump_clock: MockClock,
) -> None:
    async with open_site(partitions=2) as site:
        for partition in range(2):
            await append(site.east, range(8), partition=partition)
        await relay(site.west, 6, partition=0)
        await relay(site.mars, 3, partition=0)
        await relay(site.west, 2, partition=1)
        await relay(site.mars, 5, partition=1)
        await site.cluster.kill_region(HOME)
        plan = await site.west.plan_failover(STREAM)
        report = await site.west.failover(STREAM)
        found = [await values(site.west, partition=one) for one in range(2)]

    assert (plan.to, plan.home_answers) == (TARGET, False)
    assert [one.from_sequence for one in plan.ranges] == [6, 5]
    assert report.fetched == ((1, MARS),)
    assert found == [numbered(*range(6)), numbered(*range(5))]


async def test_a_failover_to_a_region_that_is_down_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(3))
        await relay(site.west)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(TARGET)
        await trio.sleep(10)  # The nodes' sessions end.
        with pytest.raises(geolog.NotEnoughNodesError, match="0 storage nodes in eu-west"):
            await site.mars.failover(STREAM, to=TARGET)
        record = await record_of(site.mars)
        home = await site.mars.access.partitions.homes.read_latest(record.name, record.life)

    assert (record.home, record.home_epoch, record.moving_to) == (HOME, 1, "")
    assert home is not None
    assert home.record.state is HomeState.SETTLED
    assert not home.record.is_failover


async def test_relays_wait_for_a_failover_and_give_up_one_whose_mover_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(3))
        moves, owners = (
            site.west.access.partitions.home_moves,
            site.west.partition_opener.upkeep,
        )
        mover = owners.takeover.owners
        await mover.be_present()
        record = await record_of(site.west)
        await moves.begin(record, TARGET, mover=mover.presence, move_id="m", is_failover=True)
        with pytest.raises(geolog.UnavailableError, match="is moving from"):
            await relay(site.mars)
        await moves.give_up(record, "m")
        await moves.begin(
            record, TARGET, mover=f"{mover.presence}gone", move_id="n", is_failover=True
        )
        with pytest.raises(geolog.UnavailableError, match="is being failed over"):
            await relay(site.mars)
        await relay(site.mars)
        found = await values(site.mars)

    assert found == numbered(0, 1, 2)


async def test_positions_in_a_dead_branch_go_on_behind_a_gap_where_the_new_home_begins(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM, cursor="c") as cursor:
            before = [one async for one in cursor]
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 23))
        by_sequence = await items_from(site.west, AtSequence(8, 1))
        by_dlsn = await items_from(site.west, AtDlsn(before[8].dlsn))
        within = await items_from(site.west, AtSequence(2, 1))
        described = (await site.west.describe_cursor(STREAM, "c")).partition_list[0]
        async with site.west.open_reader(STREAM, cursor="c") as cursor:
            by_cursor = [one async for one in cursor.items()]
        async with site.west.open_reader(STREAM, cursor="c") as cursor:
            again = [one async for one in cursor.items()]
        with pytest.raises(geolog.InvalidArgumentError, match="no home epoch 3"):
            await items_from(site.west, AtSequence(2, 3))

    new = [(b"20", 4, 2), (b"21", 5, 2), (b"22", 6, 2)]
    told = [_told(one) for one in by_sequence]
    assert told == [("diverged", 4, 8, 2), *new]
    assert [_told(one) for one in by_dlsn] == [("diverged", None, 4, 2), *new]
    assert [_told(one) for one in within] == [(b"2", 2, 1), (b"3", 3, 1), *new]
    assert (described.sequence, described.home_epoch) == (10, 1)
    assert described.lag_records == len(new)
    assert [_told(one) for one in by_cursor] == [("diverged", 4, 10, 2), *new]
    assert again == []


async def test_a_range_that_ends_in_a_dead_branch_ends_with_a_gap_where_that_begins(
    autojump_clock: MockClock,
) -> None:
    """As a task of Spark reads it, which was planned before the failover."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        _, (span,) = await site.east.spans_between(STREAM)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 23))
        stop = AtSequence(span.end, span.home_epoch)
        async with site.west.open_reader(
            STREAM, start=AtSequence(2, span.home_epoch), stop=stop
        ) as reader:
            found = [_told(one) async for one in reader.items()]
        with pytest.raises(geolog.InvalidArgumentError, match="begin at sequence 4, where"):
            await site.west.spans_between(STREAM, start=AtSequence(8, 1))

    assert (span.end, span.home_epoch) == (10, 1)
    assert found == [(b"2", 2, 1), (b"3", 3, 1), ("diverged", 4, 10, 2)]


def _told(item: Record | Gap) -> tuple[object, ...]:
    if isinstance(item, Gap):
        return item.reason.value, item.from_sequence, item.to_sequence, item.epoch
    return item.value, item.sequence, item.epoch


async def test_a_reader_that_followed_the_dead_branch_hears_where_the_stream_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(6))
        await relay(site.west, 4)
        async with site.east.open_reader(STREAM, follow=True) as reader:
            items = reader.items()
            seen = [await anext(items) for _ in range(6)]
            await site.cluster.kill_region(HOME)
            await site.west.failover(STREAM, to=TARGET)
            await append(site.west, range(20, 22))
            await site.cluster.restart_region(HOME)
            await relay(site.east)
            with trio.fail_after(60):
                gap = await anext(items)
                after = [await anext(items) for _ in range(2)]

    assert [_told(one) for one in seen] == [(b"%d" % n, n, 1) for n in range(6)]
    assert gap == Gap(STREAM, 0, GapReason.DIVERGED, 4, 6, 2)
    assert [_told(one) for one in after] == [(b"20", 4, 2), (b"21", 5, 2)]


@pytest.mark.parametrize("count", [5, 1], ids=["below-its-end", "beyond-its-end"])
@pytest.mark.parametrize("is_following", [True, False])
async def test_a_reader_whose_settings_are_old_hears_that_the_new_home_began_below(
    autojump_clock: MockClock, *, is_following: bool, count: int
) -> None:
    """Its metadata server lags: it takes the log of the new home for that of a mirror."""
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 5)
        record = await record_of(site.west)
        scan = site.west._scan(record, record.log_in(TARGET, 0))  # noqa: SLF001
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 20 + count))
        async with reading_of(scan, AtSequence(8, 1), is_following=is_following) as reader:
            items = reader.items()
            with trio.fail_after(60):
                found = [_told(await anext(items)) for _ in range(1 + count)]

    new = [(b"%d" % (15 + number), number, 2) for number in range(5, 5 + count)]
    assert found == [("diverged", 5, 8, 2), *new]


@pytest.mark.parametrize("is_following", [True, False])
async def test_a_reader_whose_settings_are_old_leaves_a_dead_place_behind_a_gap(
    autojump_clock: MockClock, *, is_following: bool
) -> None:
    """The same, from a DLSN that the fork left behind: its segment tells the home."""
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM) as reader:
            before = [one async for one in reader]
        await relay(site.west, 5)
        record = await record_of(site.west)
        scan = site.west._scan(record, record.log_in(TARGET, 0))  # noqa: SLF001
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 25))
        async with reading_of(
            scan, AtDlsn(before[8].dlsn), is_following=is_following
        ) as reader:
            items = reader.items()
            with trio.fail_after(60):
                found = [_told(await anext(items)) for _ in range(6)]

    new = [(b"%d" % (15 + number), number, 2) for number in range(5, 10)]
    assert found == [("diverged", None, 5, 2), *new]


async def test_a_reader_that_read_on_from_a_place_hears_of_the_fork_once(
    autojump_clock: MockClock,
) -> None:
    """It began at a DLSN beyond the fork, before there was one."""
    async with open_site() as site:
        await append(site.east, range(10))
        async with site.east.open_reader(STREAM) as reader:
            before = [one async for one in reader]
        await relay(site.west, 5)
        record = await record_of(site.west)
        scan = site.west._scan(record, record.log_in(HOME, 0))  # noqa: SLF001
        async with reading_of(scan, AtDlsn(before[7].dlsn), is_following=True) as reader:
            items = reader.items()
            with trio.fail_after(600):
                found = [_told(await anext(items)) for _ in range(3)]
                await site.cluster.kill_region(HOME)
                await site.west.failover(STREAM, to=TARGET)
                await append(site.west, range(20, 25))
                await site.cluster.restart_region(HOME)
                await relay(site.east, 10)
                found += [_told(await anext(items)) for _ in range(6)]

    old = [(b"%d" % number, number, 1) for number in range(7, 10)]
    new = [(b"%d" % (15 + number), number, 2) for number in range(5, 10)]
    assert found == [*old, ("diverged", 5, 10, 2), *new]


async def test_a_reader_at_the_latest_record_of_a_mirror_hears_that_its_log_was_cut(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 5)
        await relay(site.mars, 8)
        async with site.mars.open_reader(STREAM, start=geolog.LATEST, follow=True) as reader:
            items = reader.items()
            with trio.move_on_after(5):
                raise AssertionError(await anext(items))
            items = reader.items()
            await site.cluster.kill_region(HOME)
            await site.cluster.kill_region(MARS)
            await site.west.failover(STREAM, to=TARGET)
            await append(site.west, range(20, 25))
            await site.cluster.restart_region(MARS)
            await relay(site.mars)
            with trio.fail_after(60):
                found = [_told(await anext(items)) for _ in range(6)]

    new = [(b"%d" % (15 + number), number, 2) for number in range(5, 10)]
    assert found == [("diverged", 5, 8, 2), *new]


async def test_a_writer_of_the_lost_home_has_to_open_again_and_hears_what_is_left(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10), writer_id="w")
        await relay(site.west, 5)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        async with site.west.open_writer(STREAM, writer_id="w") as writer:
            again = [await writer.append(b"%d" % n, seq=n) for n in range(2, 10)]
        found = await values(site.west)

    assert found == numbered(*range(10))
    assert [one.sequence for one in again] == list(range(2, 10))
    epochs = {one.epoch for one in again[:2]}, {one.epoch for one in again[2:]}
    assert epochs == ({1}, {2})


async def test_a_ledger_that_a_fork_went_through_lives_as_long_as_a_list_names_it(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 22))
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        record = await record_of(site.east)
        (kept,) = await site.east.list_divergences(STREAM)
        shared = (await rows_of(site.east, record.log_in(HOME, 0)))[0]
        await site.east.discard_divergence(STREAM, kept.name)
        after = (await rows_of(site.east, record.log_in(HOME, 0)))[0]
        in_east = await values(site.east)
        gone = await site.east.list_divergences(STREAM)
        await site.east.delete_stream(STREAM)
        catalog = site.east.access.catalog
        left = [
            one
            for bucket in await catalog.buckets()
            for one in await catalog.records_in(bucket)
        ]

    assert shared.shared_with == (2,)
    assert after == attrs.evolve(shared, shared_with=())
    assert in_east == numbered(0, 1, 2, 3, 20, 21)
    assert gone == []
    assert not any(left)


async def test_an_export_brings_each_record_left_behind_into_a_stream_once(
    autojump_clock: MockClock,
) -> None:
    """East and mars keep the same records; they are exported from both, and again."""
    async with open_site() as site:
        await append(site.east, range(8), writer_id="w")
        await relay(site.west, 3)
        await relay(site.mars, 6)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(MARS)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 22))
        await site.cluster.restart_region(MARS)
        await relay(site.mars)
        await site.cluster.restart_region(HOME)
        await relay(site.east)
        kept = await site.west.list_divergences(STREAM)
        health = await site.west.health()
        counts = [
            await site.west.export_divergence(STREAM, one.name, into=STREAM)
            for one in (*kept, kept[0])
        ]
        async with site.west.open_reader(STREAM) as reader:
            found = [one async for one in reader]
        for one in kept:
            await site.west.discard_divergence(STREAM, one.name)
        with pytest.raises(geolog.NotFoundError, match="has no divergence"):
            await site.west.discard_divergence(STREAM, kept[0].name)
        after = await site.west.health()

    left = {one.name: range(one.from_sequence, one.to_sequence) for one in kept}
    exported = [one for one in found if one.headers]
    assert set(left) == {f"{HOME}~2#0", f"{MARS}~2#0"}
    assert counts == [len(left[one.name]) for one in (*kept, kept[0])]
    assert sorted(one.value for one in found) == sorted(numbered(*range(8), 20, 21))
    assert [one.headers["diverged-seq"] for one in exported] == [one.value for one in exported]
    assert {one.headers["diverged-writer"] for one in exported} == {b"w"}
    assert any("2 divergences" in one for one in health.reasons)
    assert not any("divergence" in one for one in after.reasons)


async def test_a_failover_that_cannot_be_is_refused_and_says_what_would_help(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(3))
        await site.east.create_stream("shop/alone", mode="regional", home=HOME)
        with pytest.raises(geolog.InvalidArgumentError, match="its targets are eu-west, mars"):
            await site.west.failover(STREAM, to="moon")
        with pytest.raises(geolog.InvalidArgumentError, match="at home in us-east already"):
            await site.west.failover(STREAM, to=HOME)
        with pytest.raises(
            geolog.InvalidArgumentError, match="has no targets, so no other region"
        ):
            await site.west.failover("shop/alone")
        plan = await site.west.plan_failover(STREAM, to="moon")
        alive = await site.west.plan_failover(STREAM)
        await site.cluster.kill_region(HOME)
        await site.cluster.kill_region(TARGET)
        await site.cluster.kill_region(MARS)
        await trio.sleep(10)  # The nodes' sessions end.
        with pytest.raises(geolog.UnavailableError, match="no region has reachable mirrors"):
            await site.west.failover(STREAM)
        record = await record_of(site.west)

    assert (plan.is_wrong, plan.to) == (True, "moon")
    assert alive.home_answers
    assert (record.home, record.moving_to) == (HOME, "")


async def test_of_two_operators_at_once_one_fails_the_stream_over(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(5))
        await relay(site.west)
        await relay(site.mars)
        await site.cluster.kill_region(HOME)
        outcomes: list[str] = []

        async def fail_over(log: geolog.Log, to: str) -> None:
            try:
                report = await log.failover(STREAM, to=to)
                outcomes.append(report.home)
            except geolog.GeologError as error:
                outcomes.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_over, site.west, TARGET)
            nursery.start_soon(fail_over, site.mars, MARS)
        record = await record_of(site.west)
        found = await values(site.mars)

    assert record.home_epoch == 2
    assert record.home in outcomes
    assert "HomeMoveConflictError" in outcomes
    assert found == numbered(*range(5))


async def test_a_second_operator_does_not_move_the_home_that_the_first_has_made(
    autojump_clock: MockClock,
) -> None:
    """The second one planned before, and confirmed once the first was through."""
    async with open_site() as site:
        await append(site.east, range(5))
        await relay(site.west)
        await relay(site.mars)
        await site.cluster.kill_region(HOME)
        planned = await site.mars.plan_failover(STREAM, to=MARS)
        await site.west.failover(STREAM, to=TARGET)
        with pytest.raises(HomeMoveConflictError, match=f"it is {TARGET} now, home epoch 2"):
            await site.mars.failover(
                STREAM, to=MARS, home=planned.home, home_epoch=planned.home_epoch
            )
        with pytest.raises(HomeMoveConflictError, match="look again"):
            await site.mars.switch_over(STREAM, to=MARS, home=HOME)
        home = await site.mars.home_of(STREAM)

    assert (planned.home, planned.home_epoch) == (HOME, 1)
    assert (home.region, home.home_epoch, home.moving_to) == (TARGET, 2, "")


async def test_a_home_that_moves_between_the_look_and_the_mark_is_not_moved_again(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        known = await record_of(site.west)
        await site.west.switch_over(STREAM, to=TARGET)
        moves = site.mars.partition_opener.upkeep.partitions.home_moves
        with pytest.raises(HomeMoveConflictError, match="has been moved meanwhile"):
            await moves.begin(known, MARS, mover="", move_id="second")

    assert known.home_epoch == 1


async def test_the_plan_tells_how_far_the_home_had_come_when_its_target_heard_of_it_last(
    autojump_clock: MockClock,
) -> None:
    """The relay of the home is gone, and its target has half of what it heard of."""
    async with (
        open_in_process_cluster({HOME: 3, TARGET: 3}) as cluster,
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await east.create_stream(STREAM, mode="regional", home=HOME, relay_to=[TARGET])
        async with open_groups(cluster):
            await append(east, range(10))
            with trio.fail_after(60):
                while True:
                    plan = await west.plan_failover(STREAM)
                    (told,) = plan.ranges
                    if told.to_sequence == 10 and told.heard_us is not None:
                        break
                    await trio.sleep(0.5)
            heard_s = (west.access.now_us() - told.heard_us) / 1e6

    assert plan.home_answers
    assert plan.at_risk.records == 0
    assert 0 <= heard_s < 10


async def test_a_bounded_read_of_a_log_that_is_cut_meanwhile_ends_behind_a_gap(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(reader=ReaderConfig(ahead_chunks=0))
    async with open_site() as site, site.cluster.open_client(HOME, config=config) as slow:
        for first in range(0, 30, 2):
            await append(site.east, range(first, first + 2))
        await relay(site.west, 4)
        async with slow.open_reader(STREAM) as reader:
            items = reader.items()
            seen = [_told(await anext(items)) for _ in range(8)]
            await site.cluster.kill_region(HOME)
            report = await site.west.failover(STREAM, to=TARGET)
            await site.cluster.restart_region(HOME)
            await relay(site.east)
            rest = [_told(one) async for one in items]

    fork = report.ranges[0].from_sequence
    assert seen == [(b"%d" % number, number, 1) for number in range(8)]
    read_to = len(seen) + len(rest) - 1
    assert rest[:-1] == [(b"%d" % number, number, 1) for number in range(8, read_to)]
    assert rest[-1] == ("diverged", fork, read_to, 2)
    assert fork < read_to < 30
