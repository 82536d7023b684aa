"""Comparing a mirror with its home, entry by entry and byte for byte.

Rows whose segment was trimmed at home are not compared: the mirror follows that trim. A
placeholder of a local-only entry equals the entry: its header has the checksums of the batches.

Rules: PROTOCOL H12.
"""

import math

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.extents import Extent
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import PartitionName
from topology.errors import UnavailableError

_AT_ONCE = 1024
"""Entries compared at a time, at most. Each time costs round trips to both regions."""

_PATIENCE_S = 20.0
"""How long some of the entries may take; each node is asked several times meanwhile."""

_BYTES_AT_ONCE = 4 << 20
"""About as many bytes of each of the two logs are in memory at a time."""


@attrs.frozen
class RowCompared:
    """Outcome of comparing a row of a mirror with its home."""

    entries_count: int
    defects: tuple[str, ...]
    """Entries that differ from the home's, or that the home does not have."""


async def compare_row(
    access: ClusterAccess, extent: Extent, home: PartitionName
) -> RowCompared:
    """Compare the entries of a mirror's row with the home's.

    UnavailableError if no node of one of the two answers in time.
    """
    numbering = extent.segment.numbering
    rows = SegmentList(home, access.partitions)
    await rows.refresh()
    defects: list[str] = []
    entries_count, start = 0, EntryId(0)
    while start <= extent.last:
        there = numbering.in_segment(start)
        row = await rows.row_of(numbering.segment, there)
        if row is None:
            number = await rows.next_from(1)
            first = None if number is None else await rows.at(number)
            if first is None:  # The home has trimmed all.
                break
            if (numbering.segment, there) < (first.segment, first.first_entry):
                if first.segment > numbering.segment:  # The home has trimmed the segment.
                    break
                start = numbering.in_ledger(first.first_entry)
                continue
            # The home's list is at least as new: its row comes before that of a mirror.
            defects += [
                f"{_place(extent, EntryId(entry))}: the home does not have it"
                for entry in range(start, extent.last + 1)
            ]
            break
        try:
            ledger = (await access.ledgers.read_latest(row.ledger)).record
        except NoSuchLedgerError:
            break
        last = EntryId(min(extent.last, start + _AT_ONCE - 1))
        mirrored = await _read(access, extent.ledger, start, last, bytes_max=_BYTES_AT_ONCE)
        begin = row.numbering.in_ledger(there)
        originals = await _read(access, ledger, begin, EntryId(begin + len(mirrored) - 1))
        # Entries behind those of a row that was completed are in the home's next row.
        compared = mirrored[: len(originals)] if row.is_completed and originals else mirrored
        for place, copy in enumerate(compared):
            where = _place(extent, copy.entry)
            if place >= len(originals):
                defects.append(f"{where}: the home does not have it")
            elif not copy.decoded.is_same_as(originals[place].decoded):
                defects.append(f"{where}: it differs from the home's")
        if not compared:
            break
        entries_count += len(compared)
        start = EntryId(start + len(compared))
    return RowCompared(entries_count, tuple(defects))


def _place(extent: Extent, entry: EntryId) -> str:
    numbering = extent.segment.numbering
    at = numbering.in_segment(entry)
    return f"{extent.partition} segment {numbering.segment} entry {at}"


async def _read(
    access: ClusterAccess,
    record: LedgerRecord,
    first: EntryId,
    last: EntryId,
    *,
    bytes_max: float = math.inf,
) -> list[FetchedEntry]:
    """These entries of a ledger, as far as it has them, until they have `bytes_max` bytes.

    UnavailableError.
    """
    if record.last_entry is not None:
        last = min(last, record.last_entry)
    found: list[FetchedEntry] = []
    found_bytes = 0
    if first <= last:
        with LedgerStream(access.reader, record, first, last) as stream:
            while stream.entry_next <= last and found_bytes < bytes_max:
                with trio.move_on_after(_PATIENCE_S) as patience:
                    some = await stream.read()
                if patience.cancelled_caught:
                    raise UnavailableError(
                        f"no node gave entry {stream.entry_next} of ledger {record.ledger}"
                        f" within {_PATIENCE_S:g} s"
                    )
                found += some
                found_bytes += sum(len(one.decoded.data) for one in some)
    return found
