"""The segments of a partition with their ledgers, in order, up to its end at one moment.

A partition may have a hundred thousand segments, so only a few are in memory at a time. If its
front is trimmed meanwhile, segments that are no longer listed do not count as missing.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import FIRST_SEQUENCE, PartitionName, SegmentRecord


@attrs.frozen
class Extent:
    """A segment, and entries 0 to `last` of its ledger."""

    partition: PartitionName
    segment: SegmentRecord
    ledger: LedgerRecord
    last: EntryId
    sequence_due: int | None
    """Expected first sequence; None if it is the one after the previous segment."""


async def extents_of(
    access: ClusterAccess, name: PartitionName, end: PartitionEnd, *, is_mirror: bool = False
) -> AsyncGenerator[Extent, None]:
    """All that are listed and were not trimmed. UnavailableError.

    is_mirror: of a log that may begin later than its home.
    """
    before: SegmentRecord | None = None
    async with aclosing(access.partitions.segments.from_first(name)) as listed:
        async for some in listed:
            records = [one.record for one in some]
            segments = [one for one in records if one.row_number <= end.row_number]
            ledgers = await access.catalog.records_of([one.ledger for one in segments])
            for segment, ledger in zip(segments, ledgers, strict=True):
                if ledger is None:
                    continue  # Trimmed meanwhile.
                due: int | None = segment.first_sequence
                if before is not None or not is_mirror:
                    due = await _sequence_due(access, name, before, segment)
                yield Extent(name, segment, ledger, _last_entry(segment, end), due)
                before = segment
            if len(segments) < len(some):
                return


async def _sequence_due(
    access: ClusterAccess,
    name: PartitionName,
    before: SegmentRecord | None,
    segment: SegmentRecord,
) -> int | None:
    """The expected first sequence: after the previous segment, unless that was trimmed."""
    sequence_next: int = FIRST_SEQUENCE
    if before is not None:
        assert before.last_sequence is not None, f"{before} has a successor and no end"
        sequence_next = before.last_sequence + 1
    if segment.first_sequence != sequence_next:
        trim = await access.partitions.trims.read_latest(name)
        if trim.first_sequence >= segment.first_sequence:
            return segment.first_sequence
    return FIRST_SEQUENCE if before is None else None


def _last_entry(segment: SegmentRecord, end: PartitionEnd) -> EntryId:
    if segment.row_number == end.row_number:
        return EntryId(segment.numbering.in_ledger(end.entry) - 1)
    assert segment.last_entry is not None, f"{segment} has a successor and no end"
    return segment.last_entry
