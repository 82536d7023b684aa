"""How far a mirror reaches: the last entry that it holds, named beyond doubt.

Entries without records count too: a sequence alone would send a snapshot of several parts
again, or skip one. The checksum of the entry's header covers all of its batches' checksums, so
two entries with equal watermarks are equal byte for byte.

Rules: PROTOCOL H2.
"""

import attrs

from geolog.protocol.ids import SegmentEntry, Sequence


@attrs.frozen(order=True)
class Watermark:
    """The last entry of a mirror; a mirror without entries has none."""

    home_epoch: int
    segment: int
    entry: SegmentEntry
    header_crc: int = attrs.field(order=False)
    """Checksum of its header."""
    sequence_next: Sequence = attrs.field(order=False)
    """The first sequence behind it."""

    def __str__(self) -> str:
        return f"entry {self.entry} of segment {self.segment}, home epoch {self.home_epoch}"

    def is_just_before(self, home_epoch: int, segment: int, entry: SegmentEntry) -> bool:
        """Whether an entry there can come next in a home's log."""
        if segment == self.segment:  # A segment belongs to one home epoch.
            return entry == self.entry + 1 and home_epoch == self.home_epoch
        return segment > self.segment and entry == 0 and home_epoch >= self.home_epoch
