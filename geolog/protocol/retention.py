"""Which segments a partition need not keep any more, by their age and by their size."""

from collections.abc import Sequence as Listed

import attrs

from geolog.protocol.ids import Sequence
from geolog.protocol.stream_state import SegmentRecord


@attrs.frozen(kw_only=True)
class RetainedSegment:
    """What decides whether a segment goes. One that is not completed has no last record."""

    activated_us: int
    last_sequence: Sequence | None
    last_append_time_us: int | None
    size_bytes: int | None

    @classmethod
    def of(cls, record: SegmentRecord) -> "RetainedSegment":
        """The part of a segment's record that matters here."""
        return cls(
            activated_us=record.activated_us,
            last_sequence=record.last_sequence,
            last_append_time_us=record.last_append_time_us,
            size_bytes=record.size_bytes,
        )

    @property
    def is_completed(self) -> bool:
        """Whether its end is known and final."""
        return self.last_sequence is not None


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

    def first_kept(
        self, newest_first: Listed[RetainedSegment], *, now_us: int
    ) -> Sequence | None:
        """The first sequence that is kept, given the segments from the last one back.

        None when none of these need go. `newest_first` may leave out the oldest segments, if
        any of those given goes: with it all that are older go.
        """
        kept_bytes = 0
        for place, segment in enumerate(newest_first):
            if place == 0 or not segment.is_completed:
                kept_bytes += segment.size_bytes or 0
                continue
            if self._goes(segment, kept_bytes, now_us):
                assert segment.last_sequence is not None
                return Sequence(segment.last_sequence + 1)
            kept_bytes += segment.size_bytes or 0
        return None

    def goes_by_age(self, segment: RetainedSegment, *, now_us: int) -> bool:
        """Whether its last record is older than is kept; then so are those before it."""
        return segment.is_completed and self._goes(segment, 0, now_us)

    def _goes(self, segment: RetainedSegment, kept_bytes: int, now_us: int) -> bool:
        if self.retention_bytes is not None and kept_bytes >= self.retention_bytes:
            return True
        if self.retention_s is None or segment.last_append_time_us is None:
            return False
        return segment.last_append_time_us < now_us - self.retention_s * 1e6
