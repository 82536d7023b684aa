"""What a stream's retention lets go of one partition, found again and again.

A segment that is completed stays as it is, so each is read once: a look reads what was listed
since the last one, and the last segment.
"""

from collections import deque

from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.protocol.ids import Sequence
from geolog.protocol.retention import RetainedSegment, RetentionPolicy
from geolog.protocol.stream_state import PartitionName

_READ_AT_ONCE = 1024


class PartitionRetention:
    """Remembers the segments of one partition that may go; 200 bytes for each."""

    def __init__(
        self, name: PartitionName, policy: RetentionPolicy, partitions: PartitionMetadata
    ) -> None:
        self.name = name
        self._policy = policy
        self._partitions = partitions
        self._completed: deque[RetainedSegment] = deque()  # The oldest first; never the last.
        self._number_next = 1  # The first segment that is not among them.

    def __repr__(self) -> str:
        return f"PartitionRetention({self.name}, {len(self._completed)} segments)"

    async def first_kept(self, *, now_us: int) -> Sequence | None:
        """The first sequence that is kept, if anything is to go before it."""
        last = await self._read_new()
        if last is None:
            return None
        return self._policy.first_kept([last, *reversed(self._completed)], now_us=now_us)

    async def _read_new(self) -> RetainedSegment | None:
        """Remember what is new and completed; the last of the list, if there is one."""
        numbers = await self._partitions.segment_numbers(self.name, least=self._number_next)
        last: RetainedSegment | None = None
        for start in range(0, len(numbers), _READ_AT_ONCE):
            asked = numbers[start : start + _READ_AT_ONCE]
            for one in await self._partitions.segments_at(self.name, asked):
                if last is not None:
                    self._completed.append(last)
                    self._number_next = one.record.segment
                last = RetainedSegment.of(one.record)
        return last

    def forget_before(self, first_kept: Sequence) -> None:
        """What lies before this sequence has gone."""
        while self._completed and self._is_before(self._completed[0], first_kept):
            self._completed.popleft()

    def _is_before(self, segment: RetainedSegment, first_kept: Sequence) -> bool:
        return segment.last_sequence is not None and segment.last_sequence < first_kept
