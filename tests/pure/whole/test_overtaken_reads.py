"""Reads overtaken by a truncation or the end of the stream report what they leave out."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.log import LogConfig
from geolog.client.reading.scan import ReaderConfig
from geolog.client.reading.stream_reader import ReadAhead
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import STREAM, World, append_each, numbered, open_world

RECORDS_EACH = 4
SEGMENTS = 15
END = RECORDS_EACH * SEGMENTS


@asynccontextmanager
async def a_stream_of_segments() -> AsyncIterator[World]:
    """Read little ahead, so that a read is soon overtaken."""
    config = LogConfig(reader=ReaderConfig(ahead_chunks=0))
    async with open_world(config=config) as world:
        for number in range(SEGMENTS):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(RECORDS_EACH, start=RECORDS_EACH * number))
        yield world


def covered(items: list[geolog.Record | geolog.Gap]) -> list[tuple[int, int, bool]]:
    """Runs of sequences, from and to, and whether they were read."""
    runs: list[tuple[int, int, bool]] = []
    for item in items:
        is_given = isinstance(item, geolog.Record)
        first = item.sequence if isinstance(item, geolog.Record) else item.from_sequence
        end = item.sequence + 1 if isinstance(item, geolog.Record) else item.to_sequence
        assert first is not None
        if runs and is_given and runs[-1][2] and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], end, True)
        else:
            runs.append((first, end, is_given))
    return runs


@pytest.mark.parametrize("seed", sampled(range(8), one_in=2))
async def test_each_record_is_read_or_in_a_gap_wherever_truncation_overtakes_a_read(
    seed: int, autojump_clock: MockClock
) -> None:
    """For bounded and following reads, and any number of truncations."""
    rng = random.Random(seed)
    start = rng.randrange(10)
    stop = rng.choice((None, rng.randint(start, END)))
    items: list[geolog.Record | geolog.Gap] = []
    cuts = sorted(rng.randint(0, END) for _ in range(rng.randint(1, 3)))
    async with (
        a_stream_of_segments() as world,
        world.log.open_reader(
            STREAM,
            start=geolog.AtSequence(start),
            stop=None if stop is None else geolog.AtSequence(stop),
        ) as reader,
    ):
        found = reader.items()
        for cut in cuts:
            async for item in found:
                items.append(item)
                if rng.random() < 0.5:
                    break
            await world.log.truncate_stream(STREAM, before=geolog.AtSequence(cut))
        items += [item async for item in found]

    runs = covered(items)
    end = END if stop is None else stop
    assert [first for first, _, _ in runs] == [start, *(to for _, to, _ in runs[:-1])][
        : len(runs)
    ]
    assert [to for _, to, _ in runs[-1:]] == ([end] if end > start else [])
    for item in items:
        if isinstance(item, geolog.Gap):
            assert item.to_sequence <= cuts[-1]
        else:
            assert item.value == b"record %d" % item.sequence


async def test_an_overtaken_follower_goes_on_after_the_gap(
    autojump_clock: MockClock,
) -> None:
    async with (
        a_stream_of_segments() as world,
        world.log.open_reader(STREAM, follow=True) as reader,
    ):
        items = [await anext(reader.items())]
        await world.log.truncate_stream(STREAM, before=geolog.LATEST)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3, start=END))
            while covered(items)[-1][1] < END + 3:
                with trio.fail_after(60):
                    items.append(await anext(reader.items()))

    runs = covered(items)
    assert [first for first, _, _ in runs[1:]] == [to for _, to, _ in runs[:-1]]
    assert sum(not is_given for _, _, is_given in runs) == 1
    assert runs[-1][2]


@pytest.mark.parametrize("follow", [False, True])
async def test_a_read_of_a_deleted_stream_says_so(
    *, follow: bool, autojump_clock: MockClock
) -> None:
    async with (
        a_stream_of_segments() as world,
        world.log.open_reader(STREAM, follow=follow) as reader,
    ):
        await anext(reader)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.log.delete_stream, STREAM)
            with trio.fail_after(60), pytest.raises(geolog.NoSuchStreamError):
                await slowly_to_the_end(reader)


async def slowly_to_the_end(reader: geolog.Reader) -> None:
    async for _ in reader:
        await trio.sleep(0.05)


async def test_highly_compressed_batches_are_not_unpacked_all_at_once(
    autojump_clock: MockClock,
) -> None:
    """One answer of a replica may have hundreds of batches of megabytes each, unpacked."""
    async with open_world() as world:
        async with world.log.open_writer(STREAM, batch_bytes=1 << 20) as writer:
            for _ in range(20):
                await writer.append(bytes(1 << 19))
        async with world.log.open_reader(STREAM) as reader:
            runs = reader.runs()
            await anext(runs)
            source = reader._source  # noqa: SLF001
            assert isinstance(source, ReadAhead)
            unpacked = len(source._batches)  # noqa: SLF001
            assert unpacked <= 1
            assert len([run async for run in runs]) == 19
