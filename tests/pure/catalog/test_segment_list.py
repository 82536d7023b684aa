"""A long list of segments is searched by buckets, and never read whole."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import Create, Delete
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
    TrimRecord,
)
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store

NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths("test")


def segment(number: int) -> SegmentRecord:
    """A segment of ten records."""
    return SegmentRecord(
        segment=number,
        ledger=LedgerId(number),
        home_epoch=1,
        first_sequence=Sequence(10 * number),
        owner_epoch=Epoch(1),
        activated_us=0,
        last_entry=EntryId(9),
        last_sequence=Sequence(10 * number + 9),
        last_append_time_us=number,
        size_bytes=10,
    )


def is_up_to(number: int, one: SegmentRecord) -> bool:
    return one.segment <= number


@attrs.frozen
class Listed:
    """A partition that exists only in metadata."""

    store: MemoryStore
    metadata: MemoryMetadata
    partitions: PartitionMetadata

    async def add(self, numbers: list[int]) -> None:
        """List segments, and make their ledgers."""
        for number in {one // BUCKET_COUNT_MAX * BUCKET_COUNT_MAX for one in numbers}:
            await self.metadata.ensure_path(PATHS.segment_bucket(NAME, number))
            await self.metadata.ensure_path(PATHS.ledger_bucket(LedgerId(number)))
        for start in range(0, len(numbers), 1000):
            some = numbers[start : start + 1000]
            await self.metadata.multi(
                [
                    one
                    for number in some
                    for one in (
                        Create(PATHS.segment(NAME, number), seal_document(segment(number))),
                        Create(PATHS.ledger(LedgerId(number))),
                    )
                ]
            )

    async def drop(self, numbers: list[int]) -> None:
        """Take segments from the list."""
        await self.metadata.multi([Delete(PATHS.segment(NAME, number)) for number in numbers])

    async def buckets(self) -> list[int]:
        """The names of the buckets that there are."""
        return await self.partitions.segments.buckets(NAME)


@asynccontextmanager
async def open_listed(numbers: list[int]) -> AsyncIterator[Listed]:
    async with open_memory_store() as store, store.open_session() as metadata:
        await metadata.ensure_path(PATHS.segments(NAME))
        await metadata.create(PATHS.owner(NAME), seal_document(OwnerRecord()))
        await metadata.create(PATHS.trim(NAME), seal_document(TrimRecord()))
        partitions = PartitionMetadata(metadata, PATHS, LedgerMetadata(metadata, PATHS))
        listed = Listed(store, metadata, partitions)
        await listed.add(numbers)
        yield listed


@pytest.mark.parametrize("seed", range(6))
async def test_a_search_agrees_with_a_scan_of_the_list(
    seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    first = rng.choice((1, 700, 1999, 2000))
    numbers = list(range(first, first + rng.choice((1, 17, 900, 2500))))
    async with open_listed(numbers) as listed:
        if rng.random() < 0.5:  # An owner made the next bucket, and did not come further.
            bucket = PATHS.segment_bucket(NAME, numbers[-1] + BUCKET_COUNT_MAX)
            await listed.metadata.ensure_path(bucket)
        segments = SegmentList(NAME, listed.partitions)
        for _ in range(4):
            await segments.refresh()
            for _ in range(8):
                sought = rng.randrange(first - 2, numbers[-1] + 3)
                found = await segments.last_where(partial(is_up_to, sought))
                naive = [one for one in numbers if one <= sought]
                assert (found and found.segment) == (naive[-1] if naive else None)
                onward = [one for one in numbers if one >= sought]
                assert await segments.next_from(sought) == (onward[0] if onward else None)
            assert await segments.last_number() == numbers[-1]
            going = numbers[: rng.randrange(len(numbers))]
            await listed.drop(going)
            del numbers[: len(going)]
            sought = rng.choice(numbers)  # By a list that still has what has gone.
            left = await segments.last_where(partial(is_up_to, sought))
            assert left is not None
            assert left.segment == sought


async def test_one_segment_of_many_is_found_in_a_few_rounds(autojump_clock: MockClock) -> None:
    async with open_listed(list(range(1, 8001))) as listed:
        listed.store.round_trip_s = lambda: 1.0
        segments = SegmentList(NAME, listed.partitions)
        since_s = trio.current_time()
        await segments.refresh()
        found = await segments.last_where(partial(is_up_to, 6543))

        assert found == segment(6543)
        assert trio.current_time() - since_s <= 11, "more was read than a few at a time"


async def test_the_end_of_a_long_list_is_found_without_reading_its_beginning(
    autojump_clock: MockClock,
) -> None:
    async with open_listed(list(range(1, 5001))) as listed:
        listed.store.round_trip_s = lambda: 1.0
        since_s = trio.current_time()
        last = await listed.partitions.segments.last(NAME)

        assert last is not None
        assert last.record == segment(5000)
        assert trio.current_time() - since_s <= 4
        back = [
            number
            async for number in listed.partitions.segments.numbers_back(NAME, highest=3001)
        ]
        assert back == list(range(3001, 0, -1))


async def test_buckets_are_deleted_with_their_segments(autojump_clock: MockClock) -> None:
    async with open_listed(list(range(1, 3501))) as listed:
        await listed.partitions.trims.move(NAME, Sequence(10 * 2100), now_us=0)

        assert await listed.partitions.trims.drop_trimmed(NAME) == 2099
        assert await listed.buckets() == [2, 3]
        ledgers = await listed.metadata.children(PATHS.ledgers)
        assert list(map(int, ledgers)) == [2, 3]
        assert await listed.partitions.segments.numbers(NAME) == list(range(2100, 3501))


async def test_a_bucket_made_for_the_next_segment_stays(
    autojump_clock: MockClock,
) -> None:
    async with open_listed(list(range(1, 1000))) as listed:
        await listed.metadata.ensure_path(PATHS.segment_bucket(NAME, 1000))
        await listed.partitions.trims.move(NAME, Sequence(10**6), now_us=0)

        assert await listed.partitions.trims.drop_trimmed(NAME) == 997
        assert await listed.buckets() == [0, 1]
