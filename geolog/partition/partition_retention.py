"""Finding out, again and again, which segments of a partition are past its retention.

The oldest segment decides whether any is to go. Only then is the newest one that is to go
searched for. Each segment's record has the bytes before it, so size needs no further reads. If
a segment is old, those before it were completed earlier and are old too, even if clocks were
wrong between: the search need not look at them. It ends at a segment that it judged itself.
"""

import logging
from datetime import timedelta

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.catalog.segment_records import VersionedSegment
from geolog.protocol.append_clock import AHEAD_US_MAX
from geolog.protocol.ids import Sequence
from geolog.protocol.retention import Clocks, RetentionPolicy, StoredSegment
from geolog.protocol.stream_state import PartitionName

_log = logging.getLogger(__name__)


class PartitionRetention:
    """Looks at one partition's list of segments, and keeps none of them for long."""

    def __init__(
        self, name: PartitionName, policy: RetentionPolicy, partitions: PartitionMetadata
    ) -> None:
        self.name = name
        self._policy = policy
        self._segments = SegmentList(name, partitions)
        self._is_behind_told = False
        self._is_ahead_told = False

    def __repr__(self) -> str:
        return f"PartitionRetention({self.name}, {self._policy})"

    async def first_kept(self, now: Clocks) -> Sequence | None:
        """The first sequence to keep, if anything is to go. NoSuchStreamError."""
        self._tell_behind(now)
        await self._segments.refresh()
        first, end = await self._segments.next_from(1), await self._segments.last_number()
        if first is None or end is None or first == end:
            return None
        oldest, last = await self._segments.stored_at(first), await self._segments.at(end)
        if oldest is None or last is None:
            return None  # Another process is trimming.

        def goes(one: VersionedSegment) -> bool:
            return self._policy.goes(_stored(one), last=last, now=now)

        if not goes(oldest):
            return None
        newest = await self._segments.last_stored_where(goes)
        if newest is None:
            return None
        self._tell_ahead(_stored(newest), now)
        assert newest.record.last_sequence is not None
        return Sequence(newest.record.last_sequence + 1)

    def _tell_behind(self, now: Clocks) -> None:
        """Warn once that this host's clock is behind the store's; either may be wrong."""
        if self._policy.retention_s is None or now.metadata_us is None:
            return
        behind_us = now.metadata_us - now.local_us
        is_behind = behind_us > AHEAD_US_MAX
        if is_behind and not self._is_behind_told:
            _log.warning(
                "%s: this host's clock is %s behind the metadata store's, so one of the two is"
                " wrong; retention may delete records late. Correct the clock that is wrong",
                self.name,
                _span(behind_us),
            )
        self._is_behind_told = is_behind

    def _tell_ahead(self, segment: StoredSegment, now: Clocks) -> None:
        """Warn once that records went by the metadata store's clock alone."""
        ahead_us = segment.ahead_us(now)
        if ahead_us > AHEAD_US_MAX and not self._is_ahead_told:
            self._is_ahead_told = True
            _log.warning(
                "%s: segment %d (records up to sequence %s) was completed by a host whose clock"
                " was %s ahead of this host's, so one of the two is wrong; retention uses the"
                " metadata store's clock alone. Correct the clock that is wrong",
                self.name,
                segment.record.segment,
                segment.record.last_sequence,
                _span(ahead_us),
            )


def _span(span_us: int) -> timedelta:
    return timedelta(seconds=round(span_us / 1e6))


def _stored(one: VersionedSegment) -> StoredSegment:
    return StoredSegment(one.record, one.stored_us)
