"""Reading back one batch that was appended before, by its place.

Records that are sent again are often batched differently: many of them then need the same old
batch. So the last batches stay in memory, and readers of the same batch share one read.
"""

from collections import OrderedDict

import attrs
import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.protocol.ids import SegmentEntry
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.wire.batch import Batch
from topology.errors import DataLostError, GeologError, TrimmedError, UnavailableError

_TIMEOUT_S = 30.0

_KEPT_BYTES_MAX = 16 << 20
"""Bound on the batches in memory: four of the largest size, or many of the usual one."""

_Place = tuple[PartitionName, int, int, int]
"""Partition, segment, entry, slot."""


@attrs.define
class _Coming:
    """A batch that is being read now."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    error: GeologError | None = None


class LocalOnlyElsewhereError(DataLostError):
    """The batch is local-only and was appended in another region: its bytes are not here."""


class BatchReadBack:
    """Reads back batches of named writers, to compare them with repeats."""

    def __init__(
        self, partitions: PartitionMetadata, ledgers: LedgerMetadata, reader: LedgerReader
    ) -> None:
        self._partitions = partitions
        self._ledgers = ledgers
        self._reader = reader
        self._kept: OrderedDict[_Place, Batch] = OrderedDict()  # Last used at the end.
        self._kept_bytes = 0
        self._coming: dict[_Place, _Coming] = {}

    def __repr__(self) -> str:
        return f"BatchReadBack({len(self._kept)} batches, {self._kept_bytes} bytes kept)"

    async def read(self, name: PartitionName, batch: WrittenBatch) -> Batch:
        """The batch. TrimmedError, UnavailableError, DataLostError.

        LocalOnlyElsewhereError if only its placeholder is here.
        """
        place = (name, batch.segment, batch.entry, batch.slot)
        while (coming := self._coming.get(place)) is not None:
            await coming.ended.wait()
            if coming.error is not None:
                raise coming.error
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
            return kept
        coming = self._coming[place] = _Coming()
        try:
            found = await self._read(name, batch)
        except GeologError as error:
            coming.error = error
            raise
        finally:
            del self._coming[place]
            coming.ended.set()
        self._keep(place, found)
        return found

    def _keep(self, place: _Place, batch: Batch) -> None:
        self._kept[place] = batch
        self._kept_bytes += batch.header.raw_bytes
        while self._kept_bytes > _KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.header.raw_bytes

    async def _read(self, name: PartitionName, batch: WrittenBatch) -> Batch:
        place = SegmentEntry(batch.entry)
        row = await self._row_of(name, batch.segment, place)
        if row is None or row.numbering.is_in_earlier(place):
            raise _trimmed(name, batch)
        entry = row.numbering.in_ledger(place)
        with trio.move_on_after(_TIMEOUT_S):
            try:
                ledger = (await self._ledgers.read_latest(row.ledger)).record
            except NoSuchLedgerError:  # It was deleted with its row just now.
                raise _trimmed(name, batch) from None
            fetched = await self._reader.read_one(ledger, entry)
            if fetched.decoded.header.is_placeholder:
                raise LocalOnlyElsewhereError(
                    f"{name}: entry {batch.entry} of segment {batch.segment} is local-only in"
                    " another region"
                )
            slot = 0
            for index, line in enumerate(fetched.decoded.header.lines):
                if slot == batch.slot:
                    return fetched.decoded.open(index)
                slot += line.record_count
            raise DataLostError(
                f"{name}: entry {entry} of ledger {ledger.ledger} has no batch at slot"
                f" {batch.slot}"
            )
        raise UnavailableError(
            f"{name}: entry {batch.entry} of segment {batch.segment} could not be read"
            f" within {_TIMEOUT_S:g} s"
        )

    async def _row_of(
        self, name: PartitionName, segment: int, entry: SegmentEntry
    ) -> SegmentRecord | None:
        """The row of the list with this entry, as it is found at most homes or by a search."""
        for listed in await self._partitions.segments.at(name, [segment]):
            if listed.record.row is None:
                return listed.record
        last = await self._partitions.segments.last(name)
        if last is None or last.record.row is None:
            return None  # The log was never elsewhere than at its first home.
        rows = SegmentList(name, self._partitions)
        await rows.refresh()
        return await rows.row_of(segment, entry)


def _trimmed(name: PartitionName, batch: WrittenBatch) -> TrimmedError:
    return TrimmedError(f"{name}: segment {batch.segment} was trimmed")
