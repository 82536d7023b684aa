"""A partition's list of segments as one reader knows it: numbers first, records when needed.

A partition may have a hundred thousand segments. Their numbers are a few kilobytes; the records
are read one by one, or by halves when one is searched for.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable

import trio

from geolog.client.streams.partition_metadata import PartitionMetadata
from geolog.protocol.stream_state import PartitionName, SegmentRecord

_RECORDS_MAX = 64
"""Records that are kept."""


class SegmentList:
    """What was listed when it was last refreshed, but for what is found to be gone since."""

    def __init__(self, name: PartitionName, partitions: PartitionMetadata) -> None:
        self._name = name
        self._partitions = partitions
        self._numbers: list[int] = []
        self._records: OrderedDict[int, SegmentRecord] = OrderedDict()

    def __repr__(self) -> str:
        return f"SegmentList({self._name}, {len(self._numbers)} segments)"

    @property
    def numbers(self) -> list[int]:
        """Of the listed segments, rising."""
        return self._numbers

    async def refresh(self, *, least: int = 1, changed: trio.Event | None = None) -> None:
        """Read the numbers again, from `least` on; `changed` is set once, when more come.

        NoSuchStreamError when the stream is gone, if `changed` is given or nothing is listed.
        """
        if changed is not None:
            await self._partitions.owner(self._name, changed=changed)
        found = await self._partitions.segment_numbers(self._name, least=least)
        if not found and changed is None:
            await self._partitions.check_exists(self._name)
        self._numbers = self._numbers[: bisect_left(self._numbers, least)] + found
        for number in [one for one in self._records if not self._records[one].is_completed]:
            del self._records[number]

    def next_from(self, number: int) -> int | None:
        """The first listed number from this one on."""
        place = bisect_left(self._numbers, number)
        return self._numbers[place] if place < len(self._numbers) else None

    async def at(self, number: int) -> SegmentRecord | None:
        """The record of a listed segment; None if it is not listed, or gone since."""
        if self.next_from(number) != number:
            return None
        record = self._records.get(number)
        if record is not None:
            self._records.move_to_end(number)
            return record
        for listed in await self._partitions.segments_at(self._name, [number]):
            self._records[number] = listed.record
            if len(self._records) > _RECORDS_MAX:
                self._records.popitem(last=False)
            return listed.record
        self._numbers.remove(number)
        return None

    async def last_where(self, holds: Callable[[SegmentRecord], bool]) -> SegmentRecord | None:
        """The last segment of which `holds` is true, if it is true of a prefix; else None."""
        numbers, found = list(self._numbers), None
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high) // 2
            record = await self.at(numbers[middle])
            if record is None:
                del numbers[middle]  # Trimmed since.
                high -= 1
            elif holds(record):
                low, found = middle + 1, record
            else:
                high = middle
        return found
