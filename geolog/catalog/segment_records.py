"""A partition's list of segments, as metadata holds it.

Only the owner appends to the list (`SegmentChanges`); segments before the trim are dropped by
`PartitionTrims`.

Rules: PROTOCOL M2.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.find_all import find_all, list_all
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, NoNodeError
from geolog.protocol.stream_state import PartitionName, SegmentRecord

_AT_FIRST = 8
"""Segments in the first read from the front: usually few are to be dropped, or none."""

_AT_ONCE_MAX = 128
"""Segments in each later read, at most: deleting that many takes about 25 kB of paths."""


@attrs.frozen
class VersionedSegment:
    """A segment's record as it was read or written."""

    record: SegmentRecord
    version: int
    stored_us: int = attrs.field(default=0, eq=False)
    """When the metadata store wrote it, by its own clock; 0 if the record was not read."""


class SegmentRecords:
    """The segments of one cluster's partitions."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

    async def buckets(
        self, name: PartitionName, *, freshness: Freshness = Freshness.LATEST
    ) -> list[int]:
        """The buckets of the listed segments, rising: all that were made before this call.

        Empty also if there is no such stream. The last bucket may have no segments yet. NEARBY
        may lack what another process made just now.
        """
        parent = self._paths.segments(name)
        try:
            buckets = await self._metadata.children(parent, freshness=freshness)
        except NoNodeError:
            return []
        return [int(bucket) for bucket in buckets]

    async def numbers_in(self, name: PartitionName, buckets: Sequence[int]) -> list[list[int]]:
        """The numbers of the segments listed in each of these buckets, rising."""
        paths = [self._paths.segment_bucket(name, one * BUCKET_COUNT_MAX) for one in buckets]
        return [list(map(int, found)) for found in await list_all(self._metadata, paths)]

    async def numbers(self, name: PartitionName, *, least: int = 1) -> list[int]:
        """The numbers of the listed segments >= `least`, rising: all written before this call.

        Empty also if there is no such stream. A caller that needs only some reads by bucket.
        """
        buckets = await self.buckets(name)
        wanted = [one for one in buckets if one >= least // BUCKET_COUNT_MAX]
        found = await self.numbers_in(name, wanted)
        return [number for some in found for number in some if number >= least]

    async def numbers_back(
        self,
        name: PartitionName,
        *,
        highest: int | None = None,
        freshness: Freshness = Freshness.LATEST,
    ) -> AsyncGenerator[int, None]:
        """The numbers of the listed segments, falling, from `highest` or from the last.

        Includes all written before this call, unless NEARBY is enough; each bucket is read
        only when it is reached.
        """
        for bucket in reversed(await self.buckets(name, freshness=freshness)):
            if highest is None or bucket <= highest // BUCKET_COUNT_MAX:
                (numbers,) = await self.numbers_in(name, [bucket])
                for number in reversed(numbers):
                    if highest is None or number <= highest:
                        yield number

    async def at(self, name: PartitionName, numbers: Sequence[int]) -> list[VersionedSegment]:
        """The segments with these numbers, in that order, without those that are gone."""
        paths = [self._paths.segment(name, number) for number in numbers]
        return [
            VersionedSegment(
                open_document(one.data, SegmentRecord, path=path), one.version, one.modified_us
            )
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
            if one is not None
        ]

    async def all(self, name: PartitionName) -> list[VersionedSegment]:
        """The whole list, in order, including all that was written before this call."""
        return await self.at(name, await self.numbers(name))

    async def last(
        self, name: PartitionName, *, freshness: Freshness = Freshness.LATEST
    ) -> VersionedSegment | None:
        """The last segment, including all that was written before this call; None if empty.

        It is the only one that may be without an end. NEARBY may lack what another process did
        just now.
        """
        async with aclosing(self.numbers_back(name, freshness=freshness)) as numbers:
            async for number in numbers:
                for found in await self.at(name, [number]):
                    return found
        return None

    async def is_empty(self, name: PartitionName) -> bool:
        """Whether no segment is listed: none was, or all were dropped."""
        async with aclosing(self.numbers_back(name)) as numbers:
            async for _ in numbers:
                return False
        return True

    async def from_first(
        self, name: PartitionName
    ) -> AsyncGenerator[list[VersionedSegment], None]:
        """The list from its front, at most `_AT_ONCE_MAX` segments at a time."""
        count = _AT_FIRST
        for bucket in await self.buckets(name):
            (numbers,) = await self.numbers_in(name, [bucket])
            while numbers:
                asked, numbers = numbers[:count], numbers[count:]
                count = min(2 * count, _AT_ONCE_MAX)
                yield await self.at(name, asked)
