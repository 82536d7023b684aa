"""What a stream's retention lets go of one partition, found again and again.

By age: the oldest segment says whether any goes; only then is the newest that goes searched
for. By size: the newest segments are summed up, back to the first that goes or to the oldest. A
segment that is completed stays as it is, so each of them is read once.
"""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.client.streams.segment_list import SegmentList
from geolog.protocol.ids import Sequence
from geolog.protocol.retention import RetainedSegment, RetentionPolicy
from geolog.protocol.stream_state import PartitionName, SegmentRecord

_READ_AT_ONCE = 256
"""Records that are read on the way back before it is seen whether that is enough, at first."""

_READ_AT_ONCE_MAX = 4096


class PartitionRetention:
    """Remembers the newest segments of one partition, as many as are kept by size.

    That takes 200 bytes for each; a policy of age alone remembers none.
    """

    def __init__(
        self, name: PartitionName, policy: RetentionPolicy, partitions: PartitionMetadata
    ) -> None:
        self.name = name
        self._policy = policy
        self._partitions = partitions
        self._segments = SegmentList(name, partitions)
        self._completed: deque[RetainedSegment] = deque()  # The oldest first; never the last.
        self._number_next: int | None = None  # The first segment that is behind all of these.

    def __repr__(self) -> str:
        return f"PartitionRetention({self.name}, {len(self._completed)} segments)"

    async def first_kept(self, *, now_us: int) -> Sequence | None:
        """The first sequence that is kept, if anything is to go. NoSuchStreamError."""
        found = [await self._first_kept_by_age(now_us), await self._first_kept_by_size(now_us)]
        return max((one for one in found if one is not None), default=None)

    async def _first_kept_by_age(self, now_us: int) -> Sequence | None:
        if self._policy.retention_s is None:
            return None
        await self._segments.refresh()
        first, last = await self._segments.next_from(1), await self._segments.last_number()
        if first is None or last is None:
            return None

        def goes(one: SegmentRecord) -> bool:
            is_old = self._policy.goes_by_age(RetainedSegment.of(one), now_us=now_us)
            return one.segment < last and is_old

        oldest = await self._segments.at(first)
        if oldest is None or not goes(oldest):
            return None
        newest = await self._segments.last_where(goes)
        if newest is None:
            return None
        assert newest.last_sequence is not None
        return Sequence(newest.last_sequence + 1)

    async def _first_kept_by_size(self, now_us: int) -> Sequence | None:
        if self._policy.retention_bytes is None:
            return None
        last = await (
            self._read_back(now_us) if self._number_next is None else self._read_new()
        )
        if last is None:
            return None
        return self._policy.first_kept([last, *reversed(self._completed)], now_us=now_us)

    async def _read_back(self, now_us: int) -> RetainedSegment | None:
        """Remember the segments from the last back, until one goes; the last, if it exists.

        Nothing is remembered before all of them are read.
        """
        known: list[RetainedSegment] = []
        number_next: int | None = None
        async with aclosing(self._chunks_back()) as chunks:
            async for newest_first in chunks:
                if number_next is None and newest_first:
                    number_next = newest_first[0].segment
                known.extend(map(RetainedSegment.of, newest_first))
                if self._policy.first_kept(known, now_us=now_us) is not None:
                    break
        if number_next is None:
            return None
        self._number_next = number_next
        self._completed = deque(reversed(known[1:]))
        return known[0]

    async def _chunks_back(self) -> AsyncGenerator[list[SegmentRecord], None]:
        """The records from the last back, some at a time, and more at a time further back."""
        asked: list[int] = []
        count = _READ_AT_ONCE
        async with aclosing(self._partitions.segment_numbers_back(self.name)) as numbers:
            async for number in numbers:
                asked.append(number)
                if len(asked) == count:
                    yield await self._records(asked)
                    asked = []
                    count = min(2 * count, _READ_AT_ONCE_MAX)
        yield await self._records(asked)

    async def _read_new(self) -> RetainedSegment | None:
        """Remember what is new and completed; the last of the list, if there is one."""
        assert self._number_next is not None
        last: RetainedSegment | None = None
        for record in await self._records(
            await self._partitions.segment_numbers(self.name, least=self._number_next)
        ):
            if last is not None:
                self._completed.append(last)
            last, self._number_next = RetainedSegment.of(record), record.segment
        return last

    async def _records(self, numbers: list[int]) -> list[SegmentRecord]:
        found = await self._partitions.segments_at(self.name, numbers)
        return [one.record for one in found]

    def forget_before(self, first_kept: Sequence) -> None:
        """What lies before this sequence has gone."""
        while self._completed and self._is_before(self._completed[0], first_kept):
            self._completed.popleft()

    def _is_before(self, segment: RetainedSegment, first_kept: Sequence) -> bool:
        return segment.last_sequence is not None and segment.last_sequence < first_kept
