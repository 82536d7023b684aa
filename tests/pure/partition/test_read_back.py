"""Reading back one batch by the place that its header gave it."""

import random
from collections.abc import Sequence as Several

import attrs
import pytest
from trio.testing import MockClock

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.metadata.paths import ClusterPaths
from geolog.partition.read_back import BatchReadBack
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import Epoch, LedgerId, Sequence
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from tests.pure.ledger.fake_nodes import CLUSTER, SEGMENT, FakeNodes, open_fake_nodes
from tests.pure.ledger.later_part import LaterSegment, later_part
from topology.errors import TrimmedError

NAME = PartitionName(StreamName("a", "b"))


class OneSegment(SegmentRecords):
    """A list with one segment, or an empty one."""

    def __init__(self, nodes: FakeNodes, segment: SegmentRecord | None) -> None:
        super().__init__(nodes.metadata, ClusterPaths(CLUSTER))
        self._segment = segment

    async def at(self, _name: PartitionName, numbers: Several[int]) -> list[VersionedSegment]:
        segment = self._segment
        is_listed = segment is not None and segment.segment in numbers
        return [VersionedSegment(segment, 0)] if segment is not None and is_listed else []


class OneLedger(LedgerMetadata):
    """Metadata that knows one ledger."""

    def __init__(self, nodes: FakeNodes, ledger: LedgerRecord) -> None:
        super().__init__(nodes.metadata, ClusterPaths(CLUSTER))
        self._ledger = ledger

    async def read_latest(self, ledger: LedgerId) -> VersionedLedger:
        assert ledger == self._ledger.ledger
        return VersionedLedger(self._ledger, 0)


def read_back_of(
    nodes: FakeNodes, ledger: LedgerRecord, segment: SegmentRecord | None
) -> BatchReadBack:
    reader = LedgerReader(
        nodes.replicas,
        rng=random.Random(1),
        config=LedgerReadConfig(),
        record_now=nodes.record_now,
    )
    ledgers = OneLedger(nodes, ledger)
    partitions = PartitionMetadata(nodes.metadata, ClusterPaths(CLUSTER), ledgers)
    partitions.segments = OneSegment(nodes, segment)
    return BatchReadBack(partitions, ledgers, reader)


def segment_of(nodes: FakeNodes) -> SegmentRecord:
    return SegmentRecord(
        segment=SEGMENT,
        ledger=nodes.ledger().ledger,
        home_epoch=1,
        first_sequence=Sequence(0),
        owner_epoch=Epoch(1),
        activated_us=0,
    )


def batch_in(entry: int) -> WrittenBatch:
    """The only batch of this entry of the segment."""
    return WrittenBatch(BatchSeqs(1, 1), SEGMENT, entry, 0, Sequence(entry), 0, 0)


async def test_a_batch_is_read_back_from_its_entry(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.store(9)
        read_back = read_back_of(nodes, nodes.ledger(), segment_of(nodes))

        assert (await read_back.read(NAME, batch_in(8))).value(0) == b"value 8"


async def test_a_batch_is_read_back_from_a_ledger_with_numbers_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        ledger = later_part(nodes, 3)
        segment = LaterSegment(**attrs.asdict(segment_of(nodes), recurse=False))
        read_back = read_back_of(nodes, ledger, segment)

        assert (await read_back.read(NAME, batch_in(8))).value(0) == b"value 8"


async def test_a_batch_of_a_segment_that_is_gone_was_trimmed(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        with pytest.raises(TrimmedError, match=f"segment {SEGMENT} was trimmed"):
            await read_back_of(nodes, nodes.ledger(), None).read(NAME, batch_in(8))


async def test_a_batch_before_the_ledgers_first_entry_was_trimmed(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        segment = LaterSegment(**attrs.asdict(segment_of(nodes), recurse=False))
        read_back = read_back_of(nodes, later_part(nodes, 3), segment)

        with pytest.raises(TrimmedError, match=f"segment {SEGMENT} was trimmed"):
            await read_back.read(NAME, batch_in(3))
