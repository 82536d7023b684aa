"""Readers of a target region read its mirror, and are told where the records come from."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.read_ranges import SequenceSpan
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import ended_by, numbered
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
    relay,
    relayed,
    rows_of,
)

_SEGMENT_BYTES = 64 * 1024


async def records_in(
    log: geolog.Log,
    *,
    start: geolog.Bound = geolog.EARLIEST,
    stop: geolog.Bound | None = None,
) -> list[geolog.Record]:
    async with log.open_reader(STREAM, start=start, stop=stop) as reader:
        return [one async for one in reader]


@asynccontextmanager
async def open_two_regions() -> AsyncIterator[tuple[InProcessCluster, geolog.Log, geolog.Log]]:
    """A home with ten records, one in each entry; and clients at home and in its target."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as log,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            for value in numbered(10):
                await writer.append(value)
        yield cluster, home, log


async def mirrored_in_parts(cluster: InProcessCluster, *, owners_count: int = 2) -> None:
    """A home of several segments, and a mirror whose owner changed in the middle of most."""
    rng = random.Random(7)
    async with cluster.open_client(HOME) as log:
        await create(log, segment_bytes=_SEGMENT_BYTES)
        transaction_id = 0
        for _ in range(owners_count):
            async with log.open_writer(STREAM) as writer:
                for _ in range(8):
                    transaction_id += 2
                    value = rng.randbytes(15_000)
                    await writer.append(value, transaction_id=transaction_id)
    async with cluster.open_client(TARGET) as log:
        count = len(await entries_of(log, await home_of(log)))
        for _ in range(0, count, 2):
            await relay(log, count=2)
        rows = [row.segment for row in await rows_of(log, await mirror_of(log))]
        assert len(rows) > len(set(rows)) > 1


async def test_every_place_in_a_mirror_is_that_of_its_home(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await mirrored_in_parts(cluster)
        async with cluster.open_client(HOME) as home, cluster.open_client(TARGET) as log:
            at_home = await records_in(home)
            mirrored = await records_in(log)
            assert [one.value for one in mirrored] == [one.value for one in at_home]
            assert [one.dlsn for one in mirrored] == [one.dlsn for one in at_home]
            assert [one.position for one in mirrored] == [one.position for one in at_home]
            assert {one.origin for one in mirrored} == {HOME}
            assert {one.served_region for one in mirrored} == {TARGET}
            assert {one.origin for one in at_home} == {None}
            for place, record in enumerate(at_home):
                assert record.transaction_id is not None
                bounds: list[geolog.Bound] = [
                    geolog.AtDlsn(record.dlsn),
                    geolog.AtSequence(record.sequence),
                    geolog.AtTransaction(record.transaction_id - 1),
                    geolog.LastRecords(len(at_home) - place),
                ]
                for start in bounds:
                    found = await records_in(log, start=start)
                    wanted = [one.dlsn for one in at_home[place:]]
                    assert [one.dlsn for one in found] == wanted, start
                found = await records_in(log, stop=geolog.AtDlsn(record.dlsn))
                assert [one.dlsn for one in found] == [one.dlsn for one in at_home[:place]]
            middle = at_home[len(at_home) // 2]
            found = await records_in(log, start=geolog.AtTime(middle.timestamp_us))
            assert found[0].timestamp_us >= middle.timestamp_us


async def test_a_read_ends_where_the_mirror_does_and_what_is_beyond_is_read_at_home(
    autojump_clock: MockClock,
) -> None:
    async with open_two_regions() as (_, _, log):
        before = await records_in(log)
        await relay(log, count=4)
        mirrored = await records_in(log)
        beyond = await records_in(log, start=geolog.AtSequence(6))
        across = await records_in(log, start=geolog.AtSequence(2), stop=geolog.AtSequence(8))
        _, spans = await log.spans_between(STREAM)
        _, spans_across = await log.spans_between(STREAM, stop=geolog.AtSequence(8))

    assert [one.sequence for one in before] == list(range(10))
    assert {one.origin for one in before} == {None}
    assert [one.sequence for one in mirrored] == list(range(4))
    assert [one.sequence for one in beyond] == list(range(6, 10))
    assert {one.origin for one in beyond} == {None}
    assert [one.sequence for one in across] == list(range(2, 8))
    assert {one.origin for one in across} == {None}
    assert spans == [SequenceSpan(STREAM, 0, 0, 4)]
    assert spans_across == [SequenceSpan(STREAM, 0, 0, 8)]


async def test_the_mirror_is_read_while_its_home_is_away(autojump_clock: MockClock) -> None:
    async with open_two_regions() as (cluster, _, log):
        await relay(log)
        await cluster.kill_region(HOME)
        found = await records_in(log)

    assert [one.sequence for one in found] == list(range(10))


async def test_a_following_reader_goes_from_row_to_row(autojump_clock: MockClock) -> None:
    async with open_two_regions() as (_, _, log):
        await relay(log, count=1)
        seen: list[int] = []
        async with log.open_reader(STREAM, follow=True) as reader:
            async for record in reader:
                seen.append(record.sequence)
                if len(seen) == 10:
                    break
                await relay(log, count=1)

    assert seen == list(range(10))


async def test_the_stream_is_described_with_its_mirrors(autojump_clock: MockClock) -> None:
    async with open_two_regions() as (_, home, log):
        entries = await entries_of(log, await home_of(log))
        async with open_mirror(log) as mirror:
            for entry in relayed(entries, behind=None)[:3]:
                mirror.push(entry)
            await mirror.wait_durable()
            (owned,) = (await home.describe_stream(STREAM)).mirror_list
        (left,) = (await home.describe_stream(STREAM)).mirror_list

    assert (owned.partition, owned.region, owned.owner_is_alive) == (0, TARGET, True)
    assert (left.rows_count, left.completed_sequence, left.owner_is_alive) == (1, 3, False)


async def test_a_reader_of_a_region_that_is_a_target_no_more_reads_at_home_once_opened_again(
    autojump_clock: MockClock,
) -> None:
    async with open_two_regions() as (_, home, log):
        await relay(log)
        async with log.open_reader(STREAM, follow=True) as reader:
            seen = [await anext(reader) for _ in range(10)]
            await home.update_stream(STREAM, relay_to=[])
            with trio.fail_after(60), ended_by(geolog.UnavailableError) as ended:
                await anext(reader)
        again = await records_in(log)

    assert {record.origin for record in seen} == {HOME}
    assert ended.error is not None
    assert ended.error.retriable
    assert "is not mirrored in" in str(ended.error)
    assert [record.value for record in again] == numbered(10)


async def test_a_reader_that_hears_late_that_its_mirror_is_gone_is_told_to_read_at_home(
    autojump_clock: MockClock,
) -> None:
    """It is cut off from metadata until all of the mirror is deleted."""
    sessions: list[MemoryMetadata] = []
    async with (
        open_two_regions() as (cluster, home, _),
        cluster.open_client(TARGET, host="late", on_session=sessions.append) as log,
    ):
        await relay(log)
        async with log.open_reader(STREAM, follow=True) as reader:
            for _ in range(10):
                await anext(reader)
            sessions[0].cut_off()
            await home.update_stream(STREAM, relay_to=[])
            await trio.sleep(30)
            sessions[0].restore()
            with trio.fail_after(120), ended_by(geolog.GeologError) as ended:
                await anext(reader)

    assert "is not mirrored in" in str(ended.error)


async def test_a_bounded_read_of_a_mirror_that_is_being_deleted_does_not_tell_of_lost_data(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await mirrored_in_parts(cluster, owners_count=4)
        async with cluster.open_client(HOME) as home, cluster.open_client(TARGET) as log:
            mirror, partitions = await mirror_of(log), home.access.partitions
            async with log.open_reader(STREAM, stop=geolog.LATEST) as reader:
                await anext(reader)
                await partitions.owners.depose(mirror)
                await partitions.trims.drop_all(mirror)
                with trio.fail_after(60), ended_by(geolog.UnavailableError) as ended:
                    async for _ in reader:
                        pass

    assert "is not mirrored in" in str(ended.error)
