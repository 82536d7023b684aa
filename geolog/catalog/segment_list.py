"""A partition's list of segments as one reader knows it: buckets first, the rest when needed.

A partition may have a hundred thousand segments, a thousand to a bucket. Known after a refresh
are the buckets. The numbers in a bucket are listed when somebody looks there, and records read
one by one, or a few at once when one is searched for: first among the buckets, then in one.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_records import VersionedSegment
from geolog.metadata.paths import BUCKET_COUNT_MAX
from geolog.protocol.stream_state import PartitionName, SegmentRecord

T = TypeVar("T")

_RECORDS_MAX = 64
"""Records that are kept."""

_BUCKETS_MAX = 16
"""Buckets of which the numbers are kept: each takes up to 40 kB."""

_PROBES = 16
"""Records that are read at once in a search: four steps find one of sixty thousand."""


class SegmentList:
    """What was listed when it was last refreshed, but for what is found to be gone since."""

    def __init__(self, name: PartitionName, partitions: PartitionMetadata) -> None:
        self._name = name
        self._partitions = partitions
        self._buckets: list[int] = []
        self._numbers: OrderedDict[int, list[int]] = OrderedDict()
        self._records: OrderedDict[int, VersionedSegment] = OrderedDict()

    def __repr__(self) -> str:
        return f"SegmentList({self._name}, {len(self._buckets)} buckets)"

    async def refresh(self, *, changed: trio.Event | None = None) -> None:
        """Look again which segments there are; `changed` is set once, when more come.

        NoSuchStreamError when the stream is gone, if `changed` is given or nothing is listed.
        """
        if changed is not None:
            await self._partitions.owners.read(self._name, changed=changed)
        self._buckets = await self._partitions.segments.buckets(self._name)
        self._numbers.clear()
        self._records.clear()
        if changed is None and await self.next_from(1) is None:
            await self._partitions.owners.check_exists(self._name)

    async def next_from(self, number: int) -> int | None:
        """The first listed number from this one on."""
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
        """The record of a segment; None if it is not listed, or gone since."""
        found = await self.stored_at(number)
        return None if found is None else found.record

    async def stored_at(self, number: int) -> VersionedSegment | None:
        """The same, as it is stored."""
        return (await self._at([number]))[0]

    async def last_where(self, holds: Callable[[SegmentRecord], bool]) -> SegmentRecord | None:
        """The last segment of which `holds` is true, if it is true of a prefix; else None."""
        found = await self.last_stored_where(lambda one: holds(one.record))
        return None if found is None else found.record

    async def last_stored_where(
        self, holds: Callable[[VersionedSegment], bool]
    ) -> VersionedSegment | None:
        """The same, of segments as they are stored.

        Where `holds` is not true of a prefix alone, it is true of the segment that is found.
        """
        buckets = self._buckets
        if buckets and not await self._numbers_in(buckets[-1]):
            buckets = buckets[:-1]  # It was made for the next segment.
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
        """The last record that holds, and the last place that holds or was trimmed since.

        What is gone went from the front, with all before it.
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
        """The first record in each of these buckets."""
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
        """The records of these segments; None for one that is gone."""
        found = {one: self._records[one] for one in numbers if one in self._records}
        missing = [one for one in numbers if one not in found]
        for listed in await self._partitions.segments.at(self._name, missing):
            found[listed.record.segment] = listed
        for number, one in found.items():
            _keep(self._records, number, one, _RECORDS_MAX)
        return [found.get(one) for one in numbers]


def _keep(kept: OrderedDict[int, T], key: int, value: T, count_max: int) -> None:
    """Keep it as the latest; the one that was used least lately goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > count_max:
        kept.popitem(last=False)
