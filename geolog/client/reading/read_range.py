"""The range to read of one partition: where reading begins and ends."""

import attrs

from geolog.client.reading.record import RecordBatch
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.ids import DLSN, SegmentEntry
from geolog.wire.entry import EntryHeader

UNKNOWN_SEQUENCE = -1
"""Stands for the sequence of a trimmed record that is known only by its DLSN."""


@attrs.frozen
class Begin:
    """Where reading begins, as far as known before entries are read."""

    segment: int = 1
    entry: SegmentEntry = SEGMENT_BEGIN
    sequence: int = 0
    time_us: int | None = None
    transaction_id: int | None = None
    slot: int = 0
    trimmed_from: int | None = None
    """The sequence requested by the caller, if the partition now begins after it."""
    row: int | None = None
    """Number of the segment's row in a mirror's list; None at home."""
    home_epoch: int | None = None
    """The position named by the caller is one of this home epoch, if known."""
    dlsn: DLSN | None = None
    """The position named by the caller, if it was a DLSN."""

    @property
    def row_number(self) -> int:
        """Number of the place's row in the list of segments."""
        return self.segment if self.row is None else self.row


@attrs.frozen
class Until:
    """Where reading ends: before the first record that reaches any of these limits."""

    sequence: int | None = None
    dlsn: DLSN | None = None
    time_us: int | None = None
    transaction_id: int | None = None

    def is_before(self, begin: Begin) -> bool:
        """Whether the range is empty."""
        return self.sequence is not None and begin.sequence >= self.sequence

    def is_past(self, header: EntryHeader) -> bool:
        """Whether the range ends with this entry."""
        return (
            (self.sequence is not None and header.next_sequence >= self.sequence)
            or (self.time_us is not None and header.append_time_us >= self.time_us)
            or (self.dlsn is not None and (header.segment, header.entry) >= self._place())
        )

    def _place(self) -> tuple[int, int]:
        assert self.dlsn is not None
        return self.dlsn.segment, self.dlsn.entry

    def end_row(self, batch: RecordBatch) -> int:
        """The first row of the batch after the range."""
        end = batch.end_row
        if self.sequence is not None:
            end = min(end, self.sequence - batch.first_sequence)
        if self.time_us is not None and batch.timestamp_us >= self.time_us:
            end = 0
        if self.dlsn is not None and (batch.segment, batch.entry) >= self._place():
            is_there = (batch.segment, batch.entry) == self._place()
            end = min(end, self.dlsn.slot - batch.first_slot) if is_there else 0
        if self.transaction_id is not None:
            end = min(end, row_of_transaction(batch, self.transaction_id))
        return max(0, end)


def row_of_transaction(batch: RecordBatch, transaction_id: int) -> int:
    """The first row with this transaction id or a higher one; the end if there is none."""
    for row in range(batch.end_row):
        found = batch.batch.transaction_id(row)
        if found is not None and found >= transaction_id:
            return row
    return batch.end_row
