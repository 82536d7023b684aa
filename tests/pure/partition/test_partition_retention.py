"""Retention finds the segments to drop by a search, whatever else is going on."""

import random
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import NoNodeError
from geolog.partition.partition_retention import PartitionRetention
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.retention import Clocks, RetentionPolicy, StoredSegment
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
)
from sim.fakes.memory_metadata import START_OF_TIME_US, MemoryMetadata, open_memory_store

SECOND_US = 1_000_000
NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths("test")


def listed_after(before: list[SegmentRecord]) -> SegmentRecord:
    """The next segment, open."""
    number = len(before) + 1
    return SegmentRecord(
        segment=number,
        ledger=LedgerId(number),
        home_epoch=1,
        first_sequence=Sequence(10 * number),
        owner_epoch=Epoch(1),
        activated_us=0,
        size_bytes_before=before[-1].size_bytes_through if before else 0,
    )


def completed(record: SegmentRecord, size_bytes: int, *, off_us: int = 0) -> SegmentRecord:
    """The segment completed with ten records, N seconds after the start by the host's clock.

    N is its number. `off_us`: how far that clock is off.
    """
    return record.completed(
        last_entry=EntryId(9),
        last_sequence=Sequence(record.first_sequence + 9),
        last_append_time_us=record.segment * SECOND_US,
        completed_us=record.segment * SECOND_US + off_us,
        last_transaction_id=None,
        size_bytes_through=record.size_bytes_before + size_bytes,
    )


async def store(metadata: MemoryMetadata, record: SegmentRecord) -> None:
    await metadata.ensure_path(PATHS.segment_bucket(NAME, record.segment))
    path = PATHS.segment(NAME, record.segment)
    found = await metadata.find(path)
    if found is None:
        await metadata.create(path, seal_document(record))
    else:
        await metadata.put(path, seal_document(record), found.version)


def naive_first_kept(
    policy: RetentionPolicy,
    listed: list[SegmentRecord],
    stored_us: dict[int, int],
    now: Clocks,
) -> int | None:
    """The same by a scan, segment by segment."""
    end = None
    for one in listed:
        segment = StoredSegment(one, stored_us[one.segment])
        if one.last_sequence is not None and policy.goes(segment, last=listed[-1], now=now):
            end = one.last_sequence + 1
    return end


@pytest.mark.parametrize("seed", range(8))
async def test_the_search_agrees_with_a_scan_of_all_segments_and_reads_few(
    seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    policy = RetentionPolicy(
        retention_s=rng.choice((None, 30.0, 300.0)),
        retention_bytes=rng.choice((None, 500, 5000)),
    )
    async with (
        open_memory_store() as tree,
        tree.open_session() as metadata,
    ):
        partitions = PartitionMetadata(metadata, PATHS, LedgerMetadata(metadata, PATHS))
        retention = PartitionRetention(NAME, policy, partitions)
        await metadata.ensure_path(PATHS.segments(NAME))
        await metadata.create(PATHS.owner(NAME), seal_document(OwnerRecord()))
        listed: list[SegmentRecord] = []
        gone_count = 0
        for turn in range(8):
            for _ in range(rng.choice((0, 1, 5, 300))):
                await trio.sleep(1)
                if listed and not listed[-1].is_completed:
                    listed[-1] = completed(listed[-1], rng.randrange(30))
                    await store(metadata, listed[-1])
                listed.append(listed_after(listed))
                if rng.random() < 0.5:
                    listed[-1] = completed(listed[-1], rng.randrange(30))
                await store(metadata, listed[-1])
            now = Clocks(
                local_us=len(listed) * SECOND_US + turn,
                metadata_us=START_OF_TIME_US + int(trio.current_time() * SECOND_US),
            )
            nodes = tree.tree.nodes
            left = {
                one.segment: nodes[PATHS.segment(NAME, one.segment)].modified_us
                for one in listed[gone_count:]
            }
            since_s = trio.current_time()
            tree.round_trip_s = lambda: 1.0
            first = await retention.first_kept(now)
            tree.round_trip_s = lambda: 0.0
            took_s = trio.current_time() - since_s

            assert first == naive_first_kept(policy, listed[gone_count:], left, now)
            assert took_s <= (6 if first is None else 12), "too much was read"
            if first is not None and rng.random() < 0.5:
                gone_count = next(
                    place for place, one in enumerate(listed) if one.first_sequence >= first
                )
                for gone in listed[:gone_count]:
                    with suppress(NoNodeError):
                        await metadata.delete(PATHS.segment(NAME, gone.segment))
                assert await retention.first_kept(now) is None


@pytest.mark.parametrize("seed", range(12))
async def test_with_wrong_clocks_in_between_the_last_segment_to_go_was_judged_old_itself(
    seed: int, autojump_clock: MockClock
) -> None:
    """Earlier segments were completed earlier; records that say otherwise had a wrong clock."""
    rng = random.Random(seed)
    policy = RetentionPolicy(retention_s=100.0)
    offs_us = (0, 0, 0, 50 * SECOND_US, -50 * SECOND_US, 1000 * SECOND_US, -1000 * SECOND_US)
    is_store_wrong = seed % 2 == 0
    async with (
        open_memory_store() as tree,
        tree.open_session() as metadata,
    ):
        partitions = PartitionMetadata(metadata, PATHS, LedgerMetadata(metadata, PATHS))
        retention = PartitionRetention(NAME, policy, partitions)
        await metadata.ensure_path(PATHS.segments(NAME))
        listed: list[SegmentRecord] = []
        for number in range(300):
            off_us = rng.choice(offs_us) if number else 0
            tree.clock_offset_us = off_us if is_store_wrong else 0
            await trio.sleep(1)
            host_off_us = 0 if is_store_wrong else off_us
            listed.append(completed(listed_after(listed), 1, off_us=host_off_us))
            await store(metadata, listed[-1])
        now = Clocks(
            local_us=round(trio.current_time() * SECOND_US),
            metadata_us=START_OF_TIME_US + round(trio.current_time() * SECOND_US),
        )

        first = await retention.first_kept(now)

        assert first is not None
        newest = listed[first // 10 - 2]
        stored_us = tree.tree.nodes[PATHS.segment(NAME, newest.segment)].modified_us
        assert newest.last_sequence == first - 1
        assert policy.goes(StoredSegment(newest, stored_us), last=listed[-1], now=now)
        assert newest.segment < trio.current_time() - 100.0, "it is young in truth"
