"""Reading a partition whose first ledger holds only a later part of its segment."""

import random
from collections.abc import AsyncIterator
from collections.abc import Sequence as Several
from contextlib import asynccontextmanager

import attrs
import pytest
from trio.testing import MockClock

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.client.reading.bounds import (
    EARLIEST,
    LATEST,
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
)
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.read_range import UNKNOWN_SEQUENCE, Begin
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.walk import Chunk, open_walk
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_tail import LedgerTails, TailConfig
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.partition.tail import TailFinder
from geolog.protocol.ids import DLSN, EntryId, Epoch, Sequence
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
    TrimRecord,
)
from tests.pure.ledger.fake_nodes import CLUSTER, LEDGER, SEGMENT, FakeNodes, open_fake_nodes
from tests.pure.ledger.later_part import FIRST, LaterLedgers, LaterSegment, later_part
from topology.errors import DataLostError

NAME = PartitionName(StreamName("a", "b"))
PATHS = ClusterPaths(CLUSTER)
COUNT = 20
END = FIRST + COUNT


class LaterSegments(SegmentRecords):
    """A list whose segments begin before their ledgers do."""

    async def at(self, name: PartitionName, numbers: Several[int]) -> list[VersionedSegment]:
        return [
            attrs.evolve(one, record=LaterSegment(**attrs.asdict(one.record, recurse=False)))
            for one in await super().at(name, numbers)
        ]


async def store_document(nodes: FakeNodes, path: str, value: attrs.AttrsInstance) -> None:
    await nodes.metadata.ensure_path(path.rpartition("/")[0])
    await nodes.metadata.create(path, seal_document(value))


@asynccontextmanager
async def open_scan(
    *, trim: int = FIRST, is_completed: bool = True
) -> AsyncIterator[PartitionScan]:
    """A partition of one segment. Its ledger's entries have their numbers as sequences."""
    async with open_fake_nodes() as nodes:
        ledger: LedgerRecord = later_part(nodes, COUNT)
        for node in nodes.nodes:
            node.lac = EntryId(COUNT - 1)
        segment = SegmentRecord(
            segment=SEGMENT,
            ledger=LEDGER,
            home_epoch=1,
            first_sequence=Sequence(FIRST),
            owner_epoch=Epoch(1),
            activated_us=0,
            append_time_us_before=FIRST - 1,
        )
        if is_completed:
            ledger = ledger.closed(EntryId(COUNT - 1))
            segment = attrs.evolve(
                segment,
                last_entry=EntryId(COUNT - 1),
                last_sequence=Sequence(END - 1),
                last_append_time_us=END - 1,
            )
        await store_document(nodes, PATHS.ledger(LEDGER), ledger)
        await store_document(nodes, PATHS.segment(NAME, SEGMENT), segment)
        await store_document(nodes, PATHS.trim(NAME), TrimRecord(first_sequence=Sequence(trim)))
        await store_document(nodes, PATHS.owner(NAME), OwnerRecord(segment_highest=SEGMENT))
        ledgers = LaterLedgers(nodes.metadata, PATHS)
        partitions = PartitionMetadata(nodes.metadata, PATHS, ledgers)
        partitions.segments = LaterSegments(nodes.metadata, PATHS)
        rng = random.Random(1)
        reader = LedgerReader(
            nodes.replicas,
            rng=rng,
            config=LedgerReadConfig(batch_entries=6),
            record_now=ledgers.record_certain,
        )

        async def check_life() -> None:
            return

        scan = PartitionScan(
            NAME,
            home_epoch=1,
            partitions=partitions,
            ledgers=ledgers,
            reader=reader,
            tails=LedgerTails(reader, TailConfig()),
            tail=TailFinder(
                partitions=partitions,
                ledgers=ledgers,
                reader=reader,
                replicas=nodes.replicas,
                rng=rng,
                recovery=RecoveryConfig(),
            ),
            check_life=check_life,
            config=ReaderConfig(),
            rng=rng,
        )
        await scan.refresh()
        yield scan


async def entries_from(scan: PartitionScan, begin: Begin) -> list[int]:
    """Numbers in the segment, by their headers, of all entries from there to the end."""
    found: list[int] = []
    async with open_walk(scan, begin, await scan.end()) as walk:
        while (step := await walk.next_chunk()) is not None:
            assert isinstance(step, Chunk)
            found += [one.decoded.header.entry for one in step.entries]
    return found


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, FIRST),
        (AtSequence(FIRST), FIRST),
        (AtSequence(FIRST + 9), FIRST + 9),
        (AtTime(FIRST + 9), FIRST + 8),  # The last entry before that time.
        (AtTransaction(1), FIRST),  # No entry has a transaction id.
        (AtDlsn(DLSN(SEGMENT, FIRST + 9, 0)), FIRST + 9),
        (LATEST, END),
    ],
)
async def test_a_read_begins_at_its_bound(
    start: Bound, first: int, autojump_clock: MockClock
) -> None:
    async with open_scan() as scan:
        begin = await PlaceSearch(scan).locate(start, await scan.end())

        assert await entries_from(scan, begin) == list(range(first, END))


async def test_a_place_before_the_ledger_was_trimmed(autojump_clock: MockClock) -> None:
    async with open_scan() as scan:
        dlsn = DLSN(SEGMENT, FIRST - 3, 0)
        begin = await PlaceSearch(scan).locate(AtDlsn(dlsn), await scan.end())

        assert begin.trimmed_from == UNKNOWN_SEQUENCE
        assert await entries_from(scan, begin) == list(range(FIRST, END))


@pytest.mark.parametrize("segment", [1, SEGMENT])
async def test_a_walk_that_reaches_the_segment_tells_what_was_trimmed(
    segment: int, autojump_clock: MockClock
) -> None:
    async with (
        open_scan() as scan,
        open_walk(scan, Begin(segment=segment, sequence=2), await scan.end()) as walk,
    ):
        assert await walk.next_chunk() == TrimmedRun(2, FIRST)
        chunk = await walk.next_chunk()

        assert isinstance(chunk, Chunk)
        assert chunk.entries[0].decoded.header.entry == FIRST


async def test_entries_that_no_ledger_has_are_lost_unless_they_were_trimmed(
    autojump_clock: MockClock,
) -> None:
    async with open_scan(trim=FIRST - 2) as scan:
        with pytest.raises(DataLostError, match=f"sequences {FIRST - 2} to {FIRST - 1} were"):
            await entries_from(scan, Begin(segment=SEGMENT, sequence=2))


async def test_a_follower_reads_the_open_ledger(autojump_clock: MockClock) -> None:
    found: list[int] = []
    async with (
        open_scan(is_completed=False) as scan,
        open_walk(scan, Begin(segment=SEGMENT, sequence=FIRST), None) as walk,
    ):
        while len(found) < COUNT:
            step = await walk.next_chunk()
            assert isinstance(step, Chunk)
            found += [one.decoded.header.entry for one in step.entries]

    assert found == list(range(FIRST, END))
