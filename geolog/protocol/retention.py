"""Which segments a partition need not keep any more, by their age and by their size.

Rules: PROTOCOL S13.
"""

import attrs

from geolog.protocol.append_clock import AHEAD_US_MAX
from geolog.protocol.stream_state import SegmentRecord


@attrs.frozen(kw_only=True)
class Clocks:
    """What time it is by this process, and by the metadata store; None: it has not said it."""

    local_us: int
    metadata_us: int | None


@attrs.frozen
class StoredSegment:
    """A segment's record, and when it was last written, by the metadata store's clock.

    A record is written when its ledger is activated, and once more when it is completed.
    """

    record: SegmentRecord
    stored_us: int

    @property
    def last_append_time_us(self) -> int | None:
        """When its last record came, at most; None while it is open.

        No record can come after the segment is completed: a later stamp is a wrong clock's.
        """
        stamped_us = self.record.last_append_time_us
        return None if stamped_us is None else min(stamped_us, self.stored_us + AHEAD_US_MAX)

    @property
    def is_stamped_ahead(self) -> bool:
        """Whether its last record bears a time that had not come when it was completed."""
        stamped_us = self.record.last_append_time_us
        return stamped_us is not None and stamped_us > self.stored_us + AHEAD_US_MAX


@attrs.frozen(kw_only=True)
class RetentionPolicy:
    """What is kept at least: records as old as this, and as many bytes. None: all of it.

    A stream may have both: a segment goes as soon as either lets it go. Only whole segments go,
    from the front, and never the last: what is kept may be more, never less.

    A segment is old when two clocks say so: this process's of its last record, and the metadata
    store's of its completion. So a wrong clock, here or where records were appended, may keep
    records for longer, and takes none away.
    """

    retention_s: float | None = None
    retention_bytes: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether nothing ever goes."""
        return self.retention_s is None and self.retention_bytes is None

    def goes(self, segment: StoredSegment, *, last: SegmentRecord, now: Clocks) -> bool:
        """Whether a segment goes, and all before it do; the last of its partition never does.

        Those before it were completed before, and have more bytes behind them.
        """
        if segment.record.segment >= last.segment:
            return False
        return self._is_old(segment, now) or self._is_enough(_kept_bytes(segment.record, last))

    def _is_old(self, segment: StoredSegment, now: Clocks) -> bool:
        last_us = segment.last_append_time_us
        if self.retention_s is None or last_us is None or now.metadata_us is None:
            return False
        kept_us = self.retention_s * 1e6
        return (
            last_us < now.local_us - kept_us and segment.stored_us < now.metadata_us - kept_us
        )

    def _is_enough(self, kept_bytes: int) -> bool:
        return self.retention_bytes is not None and kept_bytes >= self.retention_bytes


def _kept_bytes(segment: SegmentRecord, last: SegmentRecord) -> int:
    """How many are kept if it goes. What is in an open segment does not count yet."""
    return last.size_bytes_through - segment.size_bytes_through
