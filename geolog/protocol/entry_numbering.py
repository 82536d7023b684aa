"""The two numbers of an entry: the one in its ledger, and the one in its segment.

Theory of operation. A ledger numbers its entries from 0, and its nodes are asked by that
number (`EntryId`). The entry's own header says where it stands in the log: its segment, and its
number there (`SegmentEntry`), as do DLSNs. The header is never changed, whichever ledger holds
a copy. The owner of a stream numbers both alike. A copy of the stream in another region keeps
the same entries in ledgers of its own, each of which begins at some entry of a segment.

So a number of one kind becomes one of the other only here, and the types keep them apart: mypy
refuses to compare them.

Rules: PROTOCOL R16.
"""

import attrs

from geolog.protocol.ids import EntryId, SegmentEntry

SEGMENT_BEGIN = SegmentEntry(0)
"""The first entry of a segment."""


@attrs.frozen
class EntryNumbering:
    """How one ledger's entries are numbered in their segment: without holes, from `first`."""

    segment: int
    first: SegmentEntry = SEGMENT_BEGIN
    """Number in the segment of the ledger's entry 0."""

    def in_segment(self, entry: EntryId) -> SegmentEntry:
        """The number in the segment of this entry of the ledger."""
        return SegmentEntry(self.first + entry)

    def in_ledger(self, entry: SegmentEntry) -> EntryId:
        """The number in the ledger of this entry of the segment.

        For the entry before the ledger's first that is -1.
        """
        assert entry >= self.first - 1, f"entry {entry} is in a ledger before {self}"
        return EntryId(entry - self.first)

    def is_in_earlier(self, entry: SegmentEntry) -> bool:
        """Whether this entry of the segment comes before the ledger's entry 0."""
        return entry < self.first

    def is_place_of(self, entry: EntryId, segment: int, found: SegmentEntry) -> bool:
        """Whether a header with this segment and number belongs to this entry of the ledger."""
        return segment == self.segment and found == self.first + entry
