"""Reading back one batch that was appended before, by its place.

Records that are sent again are often batched differently: many of them then need the same old
batch. So the last batches stay in memory, and readers of the same batch share one read.
"""

from collections import OrderedDict

import attrs
import trio

from geolog.catalog.segment_records import SegmentRecords
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.protocol.ids import SegmentEntry
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName
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


class BatchReadBack:
    """Reads back batches of named writers, to compare them with repeats."""

    def __init__(
        self, segments: SegmentRecords, ledgers: LedgerMetadata, reader: LedgerReader
    ) -> None:
        self._segments = segments
        self._ledgers = ledgers
        self._reader = reader
        self._kept: OrderedDict[_Place, Batch] = OrderedDict()  # Last used at the end.
        self._kept_bytes = 0
        self._coming: dict[_Place, _Coming] = {}

    def __repr__(self) -> str:
        return f"BatchReadBack({len(self._kept)} batches, {self._kept_bytes} bytes kept)"

    async def read(self, name: PartitionName, batch: WrittenBatch) -> Batch:
        """The batch. TrimmedError, UnavailableError, DataLostError."""
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
        for listed in await self._segments.at(name, [batch.segment]):
            numbering, place = listed.record.numbering, SegmentEntry(batch.entry)
            if numbering.is_in_earlier(place):
                break
            entry = numbering.in_ledger(place)
            with trio.move_on_after(_TIMEOUT_S):
                try:
                    ledger = (await self._ledgers.read_latest(listed.record.ledger)).record
                except NoSuchLedgerError:
                    break  # It was deleted with its segment just now.
                fetched = await self._reader.read_one(ledger, entry)
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
        raise TrimmedError(f"{name}: segment {batch.segment} was trimmed")
