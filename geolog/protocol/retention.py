"""Which segments a partition need not keep any more, by their age and by their size."""

import attrs

from geolog.protocol.stream_state import SegmentRecord


@attrs.frozen(kw_only=True)
class RetentionPolicy:
    """What is kept at least: records as old as this, and as many bytes. None: all of it.

    A stream may have both: a segment goes as soon as either lets it go. Only whole segments go,
    and never the last: what is kept may be more, never less.
    """

    retention_s: float | None = None
    retention_bytes: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether nothing ever goes."""
        return self.retention_s is None and self.retention_bytes is None

    def goes(self, segment: SegmentRecord, *, last: SegmentRecord, now_us: int) -> bool:
        """Whether a segment goes, beside the last of its partition.

        All before one that goes are older, and have more bytes behind them: they go as well.
        """
        if segment.segment >= last.segment:
            return False
        return self._is_old(segment, now_us) or self._is_enough(self._kept_bytes(segment, last))

    def _is_old(self, segment: SegmentRecord, now_us: int) -> bool:
        if self.retention_s is None or segment.last_append_time_us is None:
            return False
        return segment.last_append_time_us < now_us - self.retention_s * 1e6

    def _kept_bytes(self, segment: SegmentRecord, last: SegmentRecord) -> int:
        """How many are kept if it goes. What is in an open segment does not count yet."""
        return last.size_bytes_through - segment.size_bytes_through

    def _is_enough(self, kept_bytes: int) -> bool:
        return self.retention_bytes is not None and kept_bytes >= self.retention_bytes
