"""Truncated streams and streams with a retention: gaps are reported, never skipped."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.reading.record import GapReason
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    numbered,
    open_world,
    records_of,
    values_of,
)
from tests.pure.whole.truncations import truncate_often


@asynccontextmanager
async def a_stream_of_segments(count: int = 4) -> AsyncIterator[World]:
    """Each segment has ten records: sequences 0 to 9, 10 to 19, and so on."""
    async with open_world() as world:
        for number in range(count):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(10, start=10 * number))
        yield world


async def items_of(world: World, **bounds: geolog.Bound) -> list[geolog.Record | geolog.Gap]:
    async with world.log.open_reader(STREAM, **bounds) as reader:  # type: ignore[arg-type]
        return [item async for item in reader.items()]


async def test_a_truncated_stream_begins_where_it_was_cut(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        assert await world.log.truncate_stream(STREAM, before=geolog.AtSequence(13)) == {0: 13}

        assert await values_of(world.log) == numbered(27, start=13)
        numbers = [one.segment for one in await world.log.list_segments(STREAM)]
        assert numbers == [2, 3, 4]
        assert (await world.log.verify_stream(STREAM)).is_good


@pytest.mark.parametrize("cut", [1, 9, 10, 11, 20, 25, 39, 40])
async def test_the_rest_is_complete_wherever_a_stream_is_truncated(
    cut: int, autojump_clock: MockClock
) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(cut))
        assert await values_of(world.log) == numbered(40 - cut, start=cut)
        async with world.log.open_writer(STREAM) as writer:
            receipt = await writer.append(b"goes on")

        assert receipt.sequence == 40
        assert await values_of(world.log) == [*numbered(40 - cut, start=cut), b"goes on"]


async def test_a_read_from_before_the_trim_gets_a_gap_first(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(13))
        gap, *records = await items_of(world, start=geolog.AtSequence(4))

        assert gap == geolog.Gap(STREAM, 0, GapReason.TRIMMED, 4, 13)
        assert [one.value for one in records if isinstance(one, geolog.Record)] == numbered(
            27, start=13
        )


async def test_plain_iteration_raises_an_error_at_a_gap_and_can_go_on(
    autojump_clock: MockClock,
) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(13))
        async with world.log.open_reader(STREAM, start=geolog.AtSequence(4)) as reader:
            with pytest.raises(geolog.TrimmedError, match=r"from 4 to 12.*left is 13"):
                await anext(reader)
            assert [record.sequence async for record in reader] == list(range(13, 40))


async def test_a_dlsn_in_a_trimmed_segment_gets_a_gap(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(20))
        gap, first, *_ = await items_of(world, start=geolog.AtDlsn(geolog.DLSN(1, 2, 0)))

        assert gap == geolog.Gap(STREAM, 0, GapReason.TRIMMED, None, 20)
        assert isinstance(first, geolog.Record)
        assert first.sequence == 20


async def test_a_reader_overtaken_by_a_truncation_gets_a_gap(
    autojump_clock: MockClock,
) -> None:
    async with a_stream_of_segments(12) as world:
        async with world.log.open_reader(STREAM) as reader:
            items = reader.items()
            first = await anext(items)
            await world.log.truncate_stream(STREAM, before=geolog.AtSequence(100))
            await trio.sleep(900)  # Nodes delete their copies: the grace is 600 s.
            rest = [item async for item in items]

        assert isinstance(first, geolog.Record)
        due, gaps = 1, 0
        for item in rest:
            if isinstance(item, geolog.Gap):
                assert item.from_sequence == due
                due, gaps = item.to_sequence, gaps + 1
            else:
                assert item.sequence == due
                due += 1
        assert due == 120
        assert gaps == 1


async def test_last_records_are_never_more_than_exist(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(35))

        assert [one.sequence for one in await records_of(
            world.log, start=geolog.LastRecords(10)
        )] == list(range(35, 40))  # fmt: skip


async def test_truncating_by_time_or_dlsn_is_truncating_by_sequence(
    autojump_clock: MockClock,
) -> None:
    async with a_stream_of_segments() as world:
        records = await records_of(world.log)
        middle = records[21]
        for bound in (geolog.AtTime(middle.timestamp_us), geolog.AtDlsn(middle.dlsn)):
            assert await world.log.truncate_stream(STREAM, before=bound) == {0: 21}


async def test_a_trim_never_goes_back(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(25))

        assert await world.log.truncate_stream(STREAM, before=geolog.AtSequence(5)) == {0: 25}
        assert (await records_of(world.log))[0].sequence == 25


async def test_truncating_beyond_the_end_is_refused_and_trims_nothing(
    autojump_clock: MockClock,
) -> None:
    async with a_stream_of_segments() as world:
        for bound in (geolog.AtSequence(41), geolog.AtDlsn(geolog.DLSN(9, 0, 0))):
            with pytest.raises(geolog.InvalidArgumentError, match="beyond the end"):
                await world.log.truncate_stream(STREAM, before=bound)

        assert await values_of(world.log) == numbered(40)


async def test_a_whole_stream_can_be_truncated(autojump_clock: MockClock) -> None:
    async with a_stream_of_segments() as world:
        await world.log.truncate_stream(STREAM, before=geolog.LATEST)
        assert await values_of(world.log) == []
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"next")

        (record,) = await records_of(world.log)
        assert (record.sequence, record.value) == (40, b"next")


async def test_concurrent_truncations_lose_nothing_else(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=65536) as world:
        appended = 0
        async with world.log.open_writer(STREAM) as writer, trio.open_nursery() as nursery:
            is_over = trio.Event()

            async def read_on() -> None:
                due = 0
                async with world.log.open_reader(STREAM, follow=True) as reader:
                    async for item in reader.items():
                        if isinstance(item, geolog.Gap):
                            assert item.from_sequence == due
                            due = item.to_sequence
                        else:
                            assert item.sequence == due
                            assert item.value.endswith(b" %d" % due)
                            due += 1
                        if due >= 400:
                            is_over.set()
                            return

            nursery.start_soon(read_on)
            for round_number in range(10):
                for _ in range(40):
                    await writer.append(bytes(3000) + b" %d" % appended)
                    appended += 1
                await world.log.truncate_stream(
                    STREAM, before=geolog.AtSequence(40 * round_number)
                )
            with trio.fail_after(60):
                await is_over.wait()
        first = (await records_of(world.log))[0]
        assert first.sequence == 360
        assert (await world.log.verify_stream(STREAM)).is_good
        assert len(await world.log.list_segments(STREAM)) <= 5


async def test_records_older_than_the_retention_go(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.log.create_stream("shop/short", survive="1 region", retention_s=600)
        for number in range(6):
            async with world.log.open_writer("shop/short") as writer:
                await append_each(writer, numbered(5, start=5 * number))
                await trio.sleep(300)
        async with world.log.open_reader("shop/short") as reader:
            found = [record.value async for record in reader]

    assert found == numbered(len(found), start=30 - len(found))
    assert len(found) in (5, 10)


async def test_records_beyond_the_retained_bytes_go(autojump_clock: MockClock) -> None:
    rng = random.Random(1)
    async with open_world() as world:
        await world.log.create_stream(
            "shop/short", survive="1 region", retention_bytes=200_000, segment_bytes=65536
        )
        async with world.log.open_writer("shop/short") as writer:
            for _ in range(60):
                await writer.append(rng.randbytes(20_000))
            await trio.sleep(120)
        async with world.log.open_reader("shop/short") as reader:
            found = [record.sequence async for record in reader]

    assert found[-1] == 59
    assert found == list(range(found[0], 60))
    assert 200_000 <= 20_000 * len(found) <= 500_000


async def test_a_streams_retention_can_be_changed_and_removed(
    autojump_clock: MockClock,
) -> None:
    async with a_stream_of_segments() as world:
        changed = await world.log.update_stream(STREAM, retention_s=60.0)
        kept = await world.log.update_stream(STREAM, segment_bytes=1 << 20)
        back = await world.log.update_stream(STREAM, retention_s=None)

    assert (changed.retention_s, kept.retention_s, back.retention_s) == (60.0, 60.0, None)
    assert kept.segment_bytes == 1 << 20


async def test_truncations_in_a_loop_leave_the_right_records(autojump_clock: MockClock) -> None:
    """`python -P -m tests.pure.whole.truncations` does a thousand."""
    seen = await truncate_often(60, seed=1)

    assert seen.gaps > 0
