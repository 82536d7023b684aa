"""What a retention lets go is found by a search, whatever else is going on."""

import random
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.client.owning.partition_retention import PartitionRetention
from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import seal_document
from geolog.metadata.memory import MemoryMetadata, open_memory_store
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import NoNodeError
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
)

NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths("test")


def listed_after(before: list[SegmentRecord]) -> SegmentRecord:
    """The next segment, which is open."""
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


def completed(record: SegmentRecord, size_bytes: int) -> SegmentRecord:
    """With ten records, the last of which came at as many seconds as its number."""
    return record.completed(
        last_entry=EntryId(9),
        last_sequence=Sequence(record.first_sequence + 9),
        last_append_time_us=record.segment * 1_000_000,
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
    policy: RetentionPolicy, listed: list[SegmentRecord], *, now_us: int
) -> int | None:
    """By a look at every segment."""
    ends = [
        one.last_sequence + 1
        for one in listed
        if one.last_sequence is not None and policy.goes(one, last=listed[-1], now_us=now_us)
    ]
    return max(ends, default=None)


@pytest.mark.parametrize("seed", range(8))
async def test_it_says_what_a_look_at_all_segments_says_and_reads_few(
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
                if listed and not listed[-1].is_completed:
                    listed[-1] = completed(listed[-1], rng.randrange(30))
                    await store(metadata, listed[-1])
                listed.append(listed_after(listed))
                if rng.random() < 0.5:
                    listed[-1] = completed(listed[-1], rng.randrange(30))
                await store(metadata, listed[-1])
            now_us = len(listed) * 1_000_000 + turn
            since_s = trio.current_time()
            tree.round_trip_s = lambda: 1.0
            first = await retention.first_kept(now_us=now_us)
            tree.round_trip_s = lambda: 0.0
            took_s = trio.current_time() - since_s

            assert first == naive_first_kept(policy, listed[gone_count:], now_us=now_us)
            assert took_s <= (6 if first is None else 12), "too much was read"
            if first is not None and rng.random() < 0.5:
                gone_count = next(
                    place for place, one in enumerate(listed) if one.first_sequence >= first
                )
                for gone in listed[:gone_count]:
                    with suppress(NoNodeError):
                        await metadata.delete(PATHS.segment(NAME, gone.segment))
                assert await retention.first_kept(now_us=now_us) is None
