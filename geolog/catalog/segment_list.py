"""A partition's list of segments as one reader knows it: buckets first, the rest on demand.

A partition may have a hundred thousand segments, a thousand to a bucket. A refresh reads the
buckets. Segment numbers are listed when a bucket is first used. Records are read one by one,
or a few at once in a search, which goes first among the buckets and then inside one.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_records import VersionedSegment
from geolog.metadata.paths import BUCKET_COUNT_MAX
from geolog.protocol.ids import SegmentEntry
from geolog.protocol.stream_state import PartitionName, SegmentRecord

T = TypeVar("T")

_RECORDS_MAX = 64
"""Segment records to keep."""

_BUCKETS_MAX = 16
"""Buckets whose numbers to keep: each takes up to 40 kB."""

_PROBES = 16
"""Records to read at once in a search: four steps find one of sixty thousand."""


class SegmentList:
    """The list as of the last refresh, less the segments that proved to be gone since."""

    def __init__(self, name: PartitionName, partitions: PartitionMetadata) -> None:
        self._name = name
        self._partitions = partitions
        self._buckets: list[int] = []
        self._numbers: OrderedDict[int, list[int]] = OrderedDict()
        self._records: OrderedDict[int, VersionedSegment] = OrderedDict()

    def __repr__(self) -> str:
        return f"SegmentList({self._name}, {len(self._buckets)} buckets)"

    async def refresh(self, *, changed: trio.Event | None = None) -> None:
        """Read the list again; `changed` is set once, when segments are added.

        NoSuchStreamError if the stream is gone and either `changed` is given or nothing is
        listed.
        """
        if changed is not None:
            await self._partitions.owners.read(self._name, changed=changed)
        self._buckets = await self._partitions.segments.buckets(self._name)
        self._numbers.clear()
        self._records.clear()
        if changed is None and await self.next_from(1) is None:
            await self._partitions.owners.check_exists(self._name)

    async def next_from(self, number: int) -> int | None:
        """The first listed number >= `number`."""
        first = bisect_left(self._buckets, number // BUCKET_COUNT_MAX)
        for bucket in self._buckets[first:]:
            numbers = await self._numbers_in(bucket)
            place = bisect_left(numbers, number)
            if place < len(numbers):
                return numbers[place]
        return None

    async def last_number(self) -> int | None:
        """The last listed number."""
        for bucket in reversed(self._buckets):
            numbers = await self._numbers_in(bucket)
            if numbers:
                return numbers[-1]
        return None

    async def at(self, number: int) -> SegmentRecord | None:
        """The record of a segment; None if it is not listed, or is gone since."""
        found = await self.stored_at(number)
        return None if found is None else found.record

    async def stored_at(self, number: int) -> VersionedSegment | None:
        """The record of a segment with its version; None if not listed, or gone since."""
        return (await self._at([number]))[0]

    async def last_where(self, holds: Callable[[SegmentRecord], bool]) -> SegmentRecord | None:
        """The last segment where `holds` is true; it must be true of a prefix. None if none."""
        found = await self.last_stored_where(lambda one: holds(one.record))
        return None if found is None else found.record

    async def row_of(self, segment: int, entry: SegmentEntry) -> SegmentRecord | None:
        """The row with this entry of a segment, unless it is trimmed or not listed yet."""
        at_number = await self.at(segment)
        if at_number is not None and at_number.row is None:
            return at_number  # As long as the log was at the first home only.
        found = await self.last_where(
            lambda one: (one.segment, one.first_entry) <= (segment, entry)
        )
        return found if found is not None and found.segment == segment else None

    async def last_stored_where(
        self, holds: Callable[[VersionedSegment], bool]
    ) -> VersionedSegment | None:
        """The last segment where `holds` is true, as it is stored.

        If `holds` is not true of a prefix alone, it is still true of the segment returned.
        """
        buckets = self._buckets
        if buckets and not await self._numbers_in(buckets[-1]):
            buckets = buckets[:-1]  # It was made for a segment that is not listed yet.
        found, place = await self._last_of(buckets, self._firsts_of, holds)
        if place is None:
            return None
        numbers = await self._numbers_in(buckets[place])
        return (await self._last_of(numbers, self._at, holds))[0] or found

    async def _last_of(
        self,
        listed: Sequence[int],
        records_of: Callable[[Sequence[int]], Awaitable[list[VersionedSegment | None]]],
        holds: Callable[[VersionedSegment], bool],
    ) -> tuple[VersionedSegment | None, int | None]:
        """The last record that holds, and the last place that holds or was trimmed meanwhile.

        Segments go from the front, so all before one that is gone are gone too.
        """
        found, low, high = None, 0, len(listed)
        while low < high:
            places = range(low, high, -(-(high - low) // _PROBES))
            records = await records_of([listed[place] for place in places])
            for place, record in zip(places, records, strict=True):
                if record is not None and not holds(record):
                    high = place
                    break
                found, low = record or found, place + 1
        return found, low - 1 if low else None

    async def _firsts_of(self, buckets: Sequence[int]) -> list[VersionedSegment | None]:
        """The first record of each of these buckets; None for an empty one."""
        listed = await self._partitions.segments.numbers_in(self._name, buckets)
        for bucket, numbers in zip(buckets, listed, strict=True):
            _keep(self._numbers, bucket, numbers, _BUCKETS_MAX)
        records = iter(await self._at([numbers[0] for numbers in listed if numbers]))
        return [next(records) if numbers else None for numbers in listed]

    async def _numbers_in(self, bucket: int) -> list[int]:
        numbers = self._numbers.get(bucket)
        if numbers is None:
            (numbers,) = await self._partitions.segments.numbers_in(self._name, [bucket])
            _keep(self._numbers, bucket, numbers, _BUCKETS_MAX)
        return numbers

    async def _at(self, numbers: Sequence[int]) -> list[VersionedSegment | None]:
        """The records of these segments; None for each that is gone."""
        found = {one: self._records[one] for one in numbers if one in self._records}
        missing = [one for one in numbers if one not in found]
        for listed in await self._partitions.segments.at(self._name, missing):
            found[listed.record.row_number] = listed
        for number, one in found.items():
            _keep(self._records, number, one, _RECORDS_MAX)
        return [found.get(one) for one in numbers]


def _keep(kept: OrderedDict[int, T], key: int, value: T, count_max: int) -> None:
    """Keep it as the most recent; drop the least recently used one if there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > count_max:
        kept.popitem(last=False)
