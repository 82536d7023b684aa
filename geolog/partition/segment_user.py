"""The owner of a partition as the code that opens its segments sees it."""

from typing import Protocol

import attrs

from geolog.ledger.writing.ledger_writer import LedgerListener
from geolog.partition.open_segment import OpenSegment
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.ids import SegmentEntry
from geolog.protocol.partition_state import PartitionState


@attrs.frozen(kw_only=True)
class RowPlace:
    """Where the next ledger of a partition's list goes on."""

    home_epoch: int
    segment: int
    row: int | None = None
    """Its number in the list, if that is not the segment's."""
    first_entry: SegmentEntry = SEGMENT_BEGIN


class SegmentUser(LedgerListener, Protocol):
    """The owner whose entries are written to the segments."""

    @property
    def mirror_in(self) -> str | None:
        """The region of the log if it is a mirror; None if it is the one at home."""
        ...

    @property
    def is_failed(self) -> bool:
        """Whether to stop writing."""
        ...

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not acknowledged yet."""
        ...

    @property
    def acknowledged(self) -> PartitionState:
        """The partition's state after all acknowledged entries."""
        ...

    def next_place(self, number: int) -> RowPlace:
        """Where the ledger that gets this number in the list goes on."""
        ...

    def check_deadline(self) -> None:
        """UnavailableError if an entry has waited too long."""
        ...

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Write unacknowledged entries to this segment, and go on there."""
        ...

    def now_us(self) -> int:
        """Wall-clock time, not far ahead of the metadata store's."""
        ...

    def local_us(self) -> int:
        """Wall-clock time of this host, not adjusted."""
        ...
