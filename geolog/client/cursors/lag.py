"""How far a position is behind the end of its partition: in records, bytes and seconds."""

import attrs

from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan
from geolog.protocol.ids import EntryId
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import SegmentRecord
from geolog.wire.entry import EntryHeader, EntryKind


@attrs.frozen(kw_only=True)
class PartitionLag:
    """The part of one partition that is left to read."""

    records: int
    bytes: int
    """Bytes of batches. Within a segment, records count as equally large."""
    seconds: float
    """Age of the first record that is left."""


NO_LAG = PartitionLag(records=0, bytes=0, seconds=0.0)


async def lag_of(
    scan: PartitionScan, sequence: int, end: PartitionEnd, *, now_us: int
) -> PartitionLag:
    """The lag of the record with this sequence, or of the first one that is left."""
    await scan.refresh()
    sequence = max(sequence, await scan.trim())
    if sequence >= end.sequence:
        return NO_LAG
    begin = await PlaceSearch(scan).at_sequence(sequence)
    first = await scan.segment(begin.row_number)
    last = first if begin.row_number == end.row_number else await scan.segment(end.row_number)
    if first is None or last is None:
        return NO_LAG  # Trimmed meanwhile.
    header = await _header_of(scan, first, first.numbering.in_ledger(begin.entry), sequence)
    if last.is_completed:
        end_bytes = last.size_bytes_through
    else:
        end_entry = EntryId(max(0, last.numbering.in_ledger(end.entry) - 1))
        tail = await _last_header(scan, last, end_entry)
        mean = _mean_bytes([header, tail] if first is last else [tail])
        end_bytes = last.size_bytes_before + round(mean * (end.sequence - last.first_sequence))
    behind = end_bytes - first.size_bytes_before
    records_of_first = _end_sequence(first, end) - first.first_sequence
    bytes_of_first = behind if first is last else first.size_bytes or 0
    skipped = bytes_of_first * (sequence - first.first_sequence) // max(1, records_of_first)
    return PartitionLag(
        records=end.sequence - sequence,
        bytes=max(0, behind - skipped),
        seconds=max(0.0, (now_us - header.append_time_us) / 1e6),
    )


async def _header_of(
    scan: PartitionScan, segment: SegmentRecord, entry: EntryId, sequence: int
) -> EntryHeader:
    """The header of the entry with this sequence: that, or one after control entries."""
    header = await _header(scan, segment, entry)
    while header.next_sequence <= sequence:
        entry = EntryId(entry + 1)
        header = await _header(scan, segment, entry)
    return header


async def _last_header(
    scan: PartitionScan, segment: SegmentRecord, entry: EntryId
) -> EntryHeader:
    """The header of the last entry with records, up to this entry; any if there is none."""
    header = await _header(scan, segment, entry)
    while header.kind is not EntryKind.DATA and entry:
        entry = EntryId(entry - 1)
        header = await _header(scan, segment, entry)
    return header


async def _header(scan: PartitionScan, segment: SegmentRecord, entry: EntryId) -> EntryHeader:
    ledger = (await scan.ledger_of(segment)).record
    return (await scan.fetch(ledger, entry)).decoded.header


def _end_sequence(segment: SegmentRecord, end: PartitionEnd) -> int:
    return end.sequence if segment.last_sequence is None else segment.last_sequence + 1


def _mean_bytes(headers: list[EntryHeader]) -> float:
    """Bytes of a record, on average."""
    records = [one for one in headers if one.kind is EntryKind.DATA]
    count = sum(one.record_count for one in records)
    return sum(one.body_bytes for one in records) / max(1, count)
