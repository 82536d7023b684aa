"""A stream of many segments is read and verified with only a few in memory."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.segment_records import SegmentRecords
from tests.pure.whole.clusters import STREAM, World, open_world, partition_of, values_of

SEGMENTS = 40


async def fill(world: World) -> None:
    for number in range(SEGMENTS):
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"%d" % number)


async def test_reading_leaves_few_watches_behind(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world)
        before = world.session.view.watches_count
        assert len(await values_of(world.log)) == SEGMENTS

        assert world.session.view.watches_count <= before + 2


async def test_following_leaves_few_watches_behind(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        before = world.session.view.watches_count
        nursery.start_soon(fill, world)
        async with world.log.open_reader(STREAM, follow=True) as reader:
            for number in range(SEGMENTS):
                assert (await anext(reader)).value == b"%d" % number

        assert world.session.view.watches_count <= before + 8


async def test_verifying_reads_a_few_segments_at_a_time_and_misses_none(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world)
        report = await world.log.verify_stream(STREAM)
        records = SegmentRecords(world.session, world.log.access.paths)
        name = await partition_of(world.log)
        counts = [len(some) async for some in records.from_first(name)]

    assert report.is_good
    assert (report.segments, report.records) == (SEGMENTS, SEGMENTS)
    assert counts == [8, 16, 16]


async def test_segments_trimmed_during_verification_are_not_gaps(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few segments are verified together, so that some are left when others are trimmed."""
    monkeypatch.setattr("geolog.admin.verification._ENTRIES_AT_ONCE", 10)
    has_begun = trio.Event()

    def on_progress(done: int, total: int) -> None:
        assert 0 < done <= total == SEGMENTS
        if done >= 5:
            has_begun.set()

    async with open_world() as world, trio.open_nursery() as nursery:
        await fill(world)

        async def trim() -> None:
            await has_begun.wait()
            await world.log.truncate_stream(STREAM, before=geolog.AtSequence(30))

        nursery.start_soon(trim)
        world.cluster.network.latency_s = lambda _one, _other: 0.1
        report = await world.log.verify_stream(STREAM, progress=on_progress)

    assert report.is_good, report.problems
    assert 10 <= report.segments < SEGMENTS


async def test_a_segment_missing_from_the_list_but_not_trimmed_is_a_gap(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world)
        name = await partition_of(world.log)
        for number in (1, 10):
            await world.session.delete(world.log.access.paths.segment(name, number))
        report = await world.log.verify_stream(STREAM)

    assert not report.is_good
    assert (report.segments, report.gaps) == (SEGMENTS - 2, 2)
