"""Comparing a mirror with its home, entry by entry and byte for byte.

Rows whose segment was trimmed at home are not compared: the mirror follows that trim.

Rules: PROTOCOL H12.
"""

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.extents import Extent
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import PartitionName

_AT_ONCE = 64
"""Entries of each of the two logs in memory at a time, at most."""


@attrs.frozen
class RowCompared:
    """Outcome of comparing a row of a mirror with its home."""

    entries_count: int
    defects: tuple[str, ...]
    """Entries that differ from the home's, or that the home does not have."""


async def compare_row(
    access: ClusterAccess, extent: Extent, home: PartitionName
) -> RowCompared:
    """Compare the entries of a mirror's row with the home's. The caller bounds the wait."""
    numbering = extent.segment.numbering
    found = await access.partitions.segments.at(home, [numbering.segment])
    if not found:
        return RowCompared(0, ())
    try:
        ledger = (await access.ledgers.read_latest(found[0].record.ledger)).record
    except NoSuchLedgerError:
        return RowCompared(0, ())
    defects: list[str] = []
    for start in range(0, extent.last + 1, _AT_ONCE):
        last = EntryId(min(extent.last, start + _AT_ONCE - 1))
        mirrored = await _read(access, extent.ledger, EntryId(start), last)
        begin = found[0].record.numbering.in_ledger(numbering.in_segment(EntryId(start)))
        originals = await _read(access, ledger, begin, EntryId(begin + last - start))
        for place, copy in enumerate(mirrored):
            where = f"{extent.partition} segment {numbering.segment} entry"
            where += f" {numbering.in_segment(copy.entry)}"
            if place >= len(originals):
                defects.append(f"{where}: the home does not have it")
            elif copy.decoded.data != originals[place].decoded.data:
                defects.append(f"{where}: it differs from the home's")
    return RowCompared(extent.last + 1, tuple(defects))


async def _read(
    access: ClusterAccess, record: LedgerRecord, first: EntryId, last: EntryId
) -> list[FetchedEntry]:
    """These entries of a ledger, as far as it has them."""
    if record.last_entry is not None:
        last = min(last, record.last_entry)
    found: list[FetchedEntry] = []
    if first <= last:
        with LedgerStream(access.reader, record, first, last) as stream:
            while stream.entry_next <= last:
                found += await stream.read()
    return found
