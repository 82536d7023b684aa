"""Which segments a partition need not keep any more, by their age and by their size.

Theory of operation. Clocks can be wrong, and a record that went is gone. So the age of a
segment is measured twice, from when it was completed, which is later than any record in it:

- by the metadata store's clock: what it says now, less what it said when it stored the record
  of the completed segment (`stored_us`);
- by the hosts' clocks: what this host's says now, less what that of the host which completed
  the segment said then (`completed_us`), an owner or one that recovered it. This one is held
  to no other clock: else the store's would lie in both measures.

A segment is old when both say so. Where the host that completed it seems to be more than
`AHEAD_US_MAX` ahead of this one, one of the two is wrong: the hosts have no say, or a clock a
century ahead would keep its segments for a century. Then the store's decides alone.

Guarantee: no record goes before its time is over, if at most one of three clocks is wrong: the
store's, that of the host which completed the segment, and this host's. A wrong clock may differ
by any span, by another one then than now. For a segment that is young in truth:

    wrong clock                     store says   hosts say     so it stays by
    none                            young        young         both
    of the completing host, behind  young        old           the store's
    of the completing host, ahead   young        no say        the store's
    this host's, behind             young        no say        the store's
    this host's, ahead              young        old           the store's
    the store's, behind then        old          young         the hosts'
    the store's, ahead then         young        young         both, for longer
    the store's, behind now         young        young         both, for longer
    the store's, ahead now          old          young         the hosts'

Where one host completes and looks it has one clock: if that is wrong, the store's is right. Two
hosts are right together while they differ by at most `AHEAD_US_MAX`; by as much may a record
go early while the store's clock is wrong, and by nothing while that is right.

What lies before an old segment was completed before it, so it is old too, whatever clocks its
own completion was seen by: the guarantee needs only the segment that is asked for to be judged.

A wrong clock keeps a segment for as much longer as it is off, at most.

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

    def ahead_us(self, now: Clocks) -> int:
        """How far the host that completed it was ahead of this one, at least; 0: it was not."""
        completed_us = self.record.completed_us
        return 0 if completed_us is None else max(0, completed_us - now.local_us)


@attrs.frozen(kw_only=True)
class RetentionPolicy:
    """What is kept at least: records as old as this, and as many bytes. None: all of it.

    A stream may have both: a segment goes as soon as either lets it go. Only whole segments go,
    from the front, and never the last: what is kept may be more, never less. By age that holds
    whichever one clock is wrong; the table above says why.
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
    """How many are kept if it goes. What is in an open segment does not count yet."""
    return last.size_bytes_through - segment.size_bytes_through
