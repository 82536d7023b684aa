"""What a stream's retention lets go of one partition, found again and again.

The oldest segment says whether any goes; only then is the newest that goes searched for. Each
segment tells how many bytes came before it, so none is asked for those behind it.
"""

from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.client.streams.segment_list import SegmentList
from geolog.protocol.ids import Sequence
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import PartitionName, SegmentRecord


class PartitionRetention:
    """Looks at one partition's list of segments; it remembers none of them for long."""

    def __init__(
        self, name: PartitionName, policy: RetentionPolicy, partitions: PartitionMetadata
    ) -> None:
        self.name = name
        self._policy = policy
        self._segments = SegmentList(name, partitions)

    def __repr__(self) -> str:
        return f"PartitionRetention({self.name}, {self._policy})"

    async def first_kept(self, *, now_us: int) -> Sequence | None:
        """The first sequence that is kept, if anything is to go. NoSuchStreamError."""
        await self._segments.refresh()
        first, end = await self._segments.next_from(1), await self._segments.last_number()
        if first is None or end is None or first == end:
            return None
        oldest, last = await self._segments.at(first), await self._segments.at(end)
        if oldest is None or last is None:
            return None  # Others are cutting it off.

        def goes(one: SegmentRecord) -> bool:
            return self._policy.goes(one, last=last, now_us=now_us)

        if not goes(oldest):
            return None
        newest = await self._segments.last_where(goes)
        if newest is None:
            return None
        assert newest.last_sequence is not None
        return Sequence(newest.last_sequence + 1)
