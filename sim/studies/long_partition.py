"""A partition with very many segments, made in a minute: most of them stand in metadata alone.

Three segments are real and stored on real nodes: the first, one in the middle, and the last.
The others exist only in metadata, as their owner would have left it: two records per segment,
with positions, times and transaction ids that continue from one to the next. No node has their
entries. Code that only uses lists and records sees no difference, and the three real segments
can be read.
"""

import random

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.reading.bounds import AtSequence, AtTime, AtTransaction
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.stream_writer import open_stream_writer
from geolog.client.writing.writer_pending import AckLevel
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import Create, Operation
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.shown_owners import ShownOwners, open_shown_owners
from geolog.partition.stream_upkeep import StreamUpkeep
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from geolog.wire.batch import Batch

SEGMENT_S = 20
"""Time between the last records of two metadata-only segments."""

SEGMENT_BYTES = 64 << 20
"""Size that the record of such a segment states."""

_RECORDS_COUNT = 1_000
_ENTRIES_COUNT = 100
_REAL_RECORDS_COUNT = 20
_MADE_AT_ONCE = 50
"""Segments in one request: about 80 kB."""


@attrs.frozen
class RealPlace:
    """A record in the middle of a real segment, by all its names."""

    sequence: AtSequence
    time: AtTime
    transaction: AtTransaction


@attrs.frozen(kw_only=True)
class _Continued(Takeover):
    """Takes over a partition without reading its log; the caller gives the state."""

    state: PartitionState

    async def take_over(
        self,
        name: PartitionName,
        who: str,
        *,
        mirror_in: str | None = None,
        move_id: str = "",
        lease_s: float | None = 0.0,
    ) -> TakenOver:
        """Own the partition, starting from the given state."""
        del lease_s
        assert mirror_in is None, "its state is the log's at home"
        assert not move_id
        owner = await self.owners.take(name, who)
        return TakenOver(owner, self.state.copy(), 0)


class LongPartition:
    """Creates the segments of one partition, starting with the first."""

    def __init__(self, access: ClusterAccess, stream: StreamRecord, *, begins_us: int) -> None:
        self._access = access
        self._stream = stream
        self._name = stream.partition(0)
        self._state = PartitionState(append_time_us=begins_us)
        self._model: LedgerRecord | None = None
        self.segments_count = 0

    async def write_real(self) -> RealPlace:
        """Have geolog write one more segment; return a place in its middle."""
        access = self._access
        await self._set_segment_highest()
        first = self._state.sequence_next
        now_us = self._state.append_time_us + SEGMENT_S * 1_000_000
        async with (
            open_shown_owners(
                access.metadata, access.paths, access.partitions.owners, access.rng
            ) as owners,
            open_stream_writer(
                self._stream,
                0,
                WriterConfig(),
                writer_id=None,
                ack=AckLevel.DURABLE,
                opener=PartitionOpener(
                    who="bench",
                    upkeep=self._upkeep(owners, now_us),
                    read_back=_nothing_to_read_back,
                    config=PartitionConfig(),
                    rng=random.Random(0),
                ),
            ) as writer,
        ):
            for number in range(_REAL_RECORDS_COUNT):
                await writer.append(b"%d" % number, transaction_id=first + number)
        await self._note_last()
        middle = first + _REAL_RECORDS_COUNT // 2
        return RealPlace(AtSequence(middle), AtTime(now_us), AtTransaction(middle))

    def _upkeep(self, owners: ShownOwners, now_us: int) -> StreamUpkeep:
        access = self._access
        return StreamUpkeep(
            catalog=StreamCatalog(access.metadata, access.paths),
            partitions=access.partitions,
            takeover=_Continued(
                partitions=access.partitions,
                owners=owners,
                ledgers=access.ledgers,
                replicas=access.replicas,
                region=access.region,
                rng=access.rng,
                recovery=access.recovery,
                now_us=lambda: now_us,
                state=self._state,
            ),
            now_us=lambda: now_us,
        )

    async def _set_segment_highest(self) -> None:
        """Make the next segment take the number after the existing ones."""
        owner = await self._access.partitions.owners.read_latest(self._name)
        await self._access.metadata.put(
            self._access.paths.owner(self._name),
            seal_document(attrs.evolve(owner.record, segment_highest=self.segments_count)),
            owner.version,
        )

    async def _note_last(self) -> None:
        """Continue after the last segment and create others like its ledger."""
        last = await self._access.partitions.segments.last(self._name)
        assert last is not None
        record = last.record
        assert record.last_sequence is not None
        assert record.last_append_time_us is not None
        self.segments_count = record.segment
        self._state = PartitionState(
            sequence_next=Sequence(record.last_sequence + 1),
            append_time_us=record.last_append_time_us,
            transaction_id=record.last_transaction_id,
            size_bytes=record.size_bytes_through,
        )
        self._model = (await self._access.ledgers.read_latest(record.ledger)).record

    # Metadata-only segments.

    async def make(self, count: int) -> None:
        """Create `count` more segments."""
        ledger_first = await self._reserve_ledgers(count)
        for start in range(0, count, _MADE_AT_ONCE):
            some = range(start, min(count, start + _MADE_AT_ONCE))
            operations: list[Operation] = []
            for number in some:
                operations += self._next(LedgerId(ledger_first + number))
            await self._make_buckets(operations)
            await self._access.metadata.multi(operations)

    async def _reserve_ledgers(self, count: int) -> int:
        path = self._access.paths.ledger_next
        stored = await self._access.metadata.get(path)
        first = int(stored.data)
        await self._access.metadata.put(path, b"%d" % (first + count), stored.version)
        return first

    async def _make_buckets(self, operations: list[Operation]) -> None:
        for bucket in sorted({one.path.rpartition("/")[0] for one in operations}):
            await self._access.metadata.ensure_path(bucket)

    def _next(self, ledger: LedgerId) -> list[Operation]:
        """The operations that create the next segment."""
        assert self._model is not None
        before = self._state
        self.segments_count += 1
        record = SegmentRecord(
            segment=self.segments_count,
            ledger=ledger,
            home_epoch=self._stream.home_epoch,
            first_sequence=before.sequence_next,
            owner_epoch=Epoch(1),
            activated_us=before.append_time_us,
            append_time_us_before=before.append_time_us,
            transaction_id_before=before.transaction_id,
            size_bytes_before=before.size_bytes,
        )
        self._state = PartitionState(
            sequence_next=Sequence(before.sequence_next + _RECORDS_COUNT),
            append_time_us=before.append_time_us + SEGMENT_S * 1_000_000,
            transaction_id=before.sequence_next + _RECORDS_COUNT - 1,
            size_bytes=before.size_bytes + SEGMENT_BYTES,
        )
        completed = record.completed(
            last_entry=EntryId(_ENTRIES_COUNT - 1),
            last_sequence=Sequence(self._state.sequence_next - 1),
            last_append_time_us=self._state.append_time_us,
            completed_us=self._state.append_time_us,
            last_transaction_id=self._state.transaction_id,
            size_bytes_through=self._state.size_bytes,
        )
        lies = attrs.evolve(
            self._model,
            ledger=ledger,
            state=LedgerState.CLOSED,
            last_entry=completed.last_entry,
            segment=completed.segment,
        )
        paths = self._access.paths
        return [
            Create(paths.segment(self._name, completed.segment), seal_document(completed)),
            Create(paths.ledger(ledger), seal_document(lies)),
        ]


async def _nothing_to_read_back(_name: PartitionName, _batch: WrittenBatch) -> Batch:
    raise AssertionError("writers without a name repeat nothing")
