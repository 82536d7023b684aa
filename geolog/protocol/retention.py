"""Decides which segments a partition may drop, by age and by size.

Theory of operation. Clocks can be wrong, and a dropped record is gone. So the age of a segment
is measured twice, counting from its completion, which is later than any record in it:

- By the metadata store's clock: the time it says now, minus the time it said when it stored the
  record of the completed segment (`stored_us`).
- By the hosts' clocks: the time that this host's clock says now, minus the time that the clock
  of the completing host said then (`completed_us`). That host is an owner, or one that
  recovered the segment. Its clock is compared with no other clock; otherwise an error of the
  store's clock would be in both measures.

A segment is old when both measures say so. If the completing host seems to be more than
`AHEAD_US_MAX` ahead of this one, one of the two is wrong, and the hosts have no say: otherwise
a clock a century ahead would keep its segments for a century. Then the store's clock decides
alone.

Guarantee: no record is dropped before its time is over, if at most one of three clocks is
wrong: the store's, the completing host's, and this host's. A wrong clock may be off by any
amount, and by another amount then than now. For a segment that is truly young:

    wrong clock                     store says   hosts say     kept by
    none                            young        young         both
    completing host's, behind       young        old           the store's
    completing host's, ahead        young        no say        the store's
    this host's, behind             young        no say        the store's
    this host's, ahead              young        old           the store's
    the store's, behind then        old          young         the hosts'
    the store's, ahead then         young        young         both, for longer
    the store's, behind now         young        young         both, for longer
    the store's, ahead now          old          young         the hosts'

A host that both completes and looks has one clock; if it is wrong, the store's is right. Two
hosts count as right together while they differ by at most `AHEAD_US_MAX`. While the store's
clock is wrong, a record may go early by that much; while it is right, not at all.

Whatever lies before an old segment was completed before it, so it is old too, whichever clocks
measured its own completion. The guarantee needs only the one segment to be judged.

A wrong clock delays a drop by at most its own error.

Rules: PROTOCOL S13.
"""

import attrs

from geolog.protocol.append_clock import AHEAD_US_MAX
from geolog.protocol.stream_state import SegmentRecord


@attrs.frozen(kw_only=True)
class Clocks:
    """The current time of this process, and of the metadata store; None if it has not said."""

    local_us: int
    metadata_us: int | None


@attrs.frozen
class StoredSegment:
    """A segment's record, and the metadata store's time of its last write.

    A record is written when its ledger is activated, and again when it is completed.
    """

    record: SegmentRecord
    stored_us: int

    def ahead_us(self, now: Clocks) -> int:
        """Minimum lead of the completing host's clock over this host's; 0 if it shows none."""
        completed_us = self.record.completed_us
        return 0 if completed_us is None else max(0, completed_us - now.local_us)


@attrs.frozen(kw_only=True)
class RetentionPolicy:
    """Keeps at least records of this age, and at least this many bytes; None keeps all.

    A stream may set both: a segment goes as soon as either lets it go. Only whole segments go,
    from the front, and never the last: more may be kept, never less. For age that holds
    whichever one clock is wrong, as the module's table shows.
    """

    retention_s: float | None = None
    retention_bytes: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever dropped."""
        return self.retention_s is None and self.retention_bytes is None

    def goes(self, segment: StoredSegment, *, last: SegmentRecord, now: Clocks) -> bool:
        """Whether a segment goes, with all before it. The last of its partition never goes.

        Segments before it were completed earlier, and have more bytes behind them.
        """
        if segment.record.segment >= last.segment:
            return False
        return self._is_old(segment, now) or self._is_enough(_kept_bytes(segment.record, last))

    def _is_old(self, segment: StoredSegment, now: Clocks) -> bool:
        completed_us = segment.record.completed_us
        if self.retention_s is None or completed_us is None or now.metadata_us is None:
            return False
        kept_us = self.retention_s * 1e6
        if now.metadata_us - segment.stored_us <= kept_us:
            return False
        return now.local_us - completed_us > kept_us or segment.ahead_us(now) > AHEAD_US_MAX

    def _is_enough(self, kept_bytes: int) -> bool:
        return self.retention_bytes is not None and kept_bytes >= self.retention_bytes


def _kept_bytes(segment: SegmentRecord, last: SegmentRecord) -> int:
    """Bytes that remain if the segment goes. Bytes of an open segment do not count yet."""
    return last.size_bytes_through - segment.size_bytes_through
