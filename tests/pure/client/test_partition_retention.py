"""What a retention lets go is found by a search, or by reading what is kept once."""

import random
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.client.owning.partition_retention import PartitionRetention
from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.repair_reporter import RepairReporter
from geolog.metadata.documents import seal_document
from geolog.metadata.memory import MemoryMetadata, open_memory_store
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairQueue
from geolog.metadata.seam import NoNodeError
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.retention import RetainedSegment, RetentionPolicy
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
)

NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths("test")


def segment(number: int, size_bytes: int | None, *, is_completed: bool = True) -> SegmentRecord:
    """One of ten records, the last of which came at `number` seconds."""
    listed = SegmentRecord(
        segment=number,
        ledger=LedgerId(number),
        home_epoch=1,
        first_sequence=Sequence(10 * number),
        owner_epoch=Epoch(1),
        activated_us=0,
    )
    if not is_completed:
        return listed
    return listed.completed(
        last_entry=EntryId(9),
        last_sequence=Sequence(10 * number + 9),
        last_append_time_us=number * 1_000_000,
        last_transaction_id=None,
        size_bytes=size_bytes,
    )


async def store(metadata: MemoryMetadata, record: SegmentRecord) -> None:
    await metadata.ensure_path(PATHS.segment_bucket(NAME, record.segment))
    path = PATHS.segment(NAME, record.segment)
    found = await metadata.find(path)
    if found is None:
        await metadata.create(path, seal_document(record))
    else:
        await metadata.put(path, seal_document(record), found.version)


@pytest.mark.parametrize("seed", range(8))
async def test_it_says_what_a_look_at_all_segments_says_and_reads_only_new_ones(
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
        repairs = RepairReporter(RepairQueue(metadata, PATHS, now_us=lambda: 0))
        partitions = PartitionMetadata(
            metadata, PATHS, LedgerMetadata(metadata, PATHS, repairs)
        )
        retention = PartitionRetention(NAME, policy, partitions)
        await metadata.ensure_path(PATHS.segments(NAME))
        await metadata.create(PATHS.owner(NAME), seal_document(OwnerRecord()))
        listed: list[SegmentRecord] = []
        gone_count = 0
        for turn in range(8):
            for _ in range(rng.choice((0, 1, 5, 100))):
                if listed and not listed[-1].is_completed:
                    listed[-1] = segment(len(listed), rng.randrange(30))
                    await store(metadata, listed[-1])
                is_completed = rng.random() < 0.5
                listed.append(segment(len(listed) + 1, None, is_completed=is_completed))
                await store(metadata, listed[-1])
            now_us = len(listed) * 1_000_000 + turn
            first = await retention.first_kept(now_us=now_us)

            naive = [RetainedSegment.of(one) for one in reversed(listed[gone_count:])]
            assert first == policy.first_kept(naive, now_us=now_us)
            if first is not None and rng.random() < 0.5:
                retention.forget_before(first)
                gone_count = next(
                    place for place, one in enumerate(listed) if one.first_sequence >= first
                )
                first = None
                for gone in listed[:gone_count]:
                    with suppress(NoNodeError):
                        await metadata.delete(PATHS.segment(NAME, gone.segment))
            since_s = trio.current_time()
            tree.round_trip_s = lambda: 1.0
            assert await retention.first_kept(now_us=now_us) == first
            tree.round_trip_s = lambda: 0.0
            took_s = trio.current_time() - since_s
            assert took_s <= (9 if first is None else 14), "too much was read"


async def test_who_is_interrupted_while_reading_back_reads_all_of_it_again(
    autojump_clock: MockClock,
) -> None:
    """With half of the sizes remembered, far more would be kept than is asked for."""
    policy = RetentionPolicy(retention_bytes=5000)
    listed = [segment(number, 10) for number in range(1, 601)]
    async with (
        open_memory_store() as tree,
        tree.open_session() as metadata,
    ):
        partitions = PartitionMetadata(metadata, PATHS, LedgerMetadata(metadata, PATHS))
        retention = PartitionRetention(NAME, policy, partitions)
        await metadata.ensure_path(PATHS.segments(NAME))
        await metadata.create(PATHS.owner(NAME), seal_document(OwnerRecord()))
        for one in listed:
            await store(metadata, one)
        tree.round_trip_s = lambda: 1.0
        with trio.move_on_after(9) as patience:
            await retention.first_kept(now_us=0)
        assert patience.cancelled_caught

        naive = [RetainedSegment.of(one) for one in reversed(listed)]
        assert await retention.first_kept(now_us=0) == policy.first_kept(naive, now_us=0)
