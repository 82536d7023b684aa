"""A partition's list of segments, as metadata holds it, and where it begins.

The owner alone adds to the list. Only what was trimmed is taken from its front, by anybody.

Rules: PROTOCOL M2 and S12.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import attrs

from geolog.catalog.partition_owners import no_partition
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all, list_all
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Delete,
    Freshness,
    Metadata,
    NoNodeError,
    NotEmptyError,
    Operation,
)
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.stream_state import PartitionName, SegmentRecord, TrimRecord

_AT_FIRST = 8
"""Segments that are looked at first, from the front: mostly few are to go, or none."""

_AT_ONCE_MAX = 128
"""Segments that are looked at together then; to delete them takes about 25 kB of paths."""


@attrs.frozen
class VersionedSegment:
    """A segment's record as it was read or written."""

    record: SegmentRecord
    version: int
    stored_us: int = attrs.field(default=0, eq=False)
    """When it was written, by the metadata store's clock; of one that was read."""


class SegmentRecords:
    """The segments of one cluster's partitions."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, ledgers: LedgerMetadata
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._ledgers = ledgers

    async def segment_buckets(self, name: PartitionName) -> list[int]:
        """The buckets of the listed segments, rising: all that were made before this call.

        Empty as well when there is no such stream. The last may be without segments yet.
        """
        parent = self._paths.segments(name)
        try:
            buckets = await self._metadata.children(parent, freshness=Freshness.LATEST)
        except NoNodeError:
            return []
        return [int(bucket) for bucket in buckets]

    async def segment_numbers_in(
        self, name: PartitionName, buckets: Sequence[int]
    ) -> list[list[int]]:
        """Numbers of the segments that are listed in each of these buckets, rising."""
        paths = [self._paths.segment_bucket(name, one * BUCKET_COUNT_MAX) for one in buckets]
        return [list(map(int, found)) for found in await list_all(self._metadata, paths)]

    async def segment_numbers(self, name: PartitionName, *, least: int = 1) -> list[int]:
        """Numbers of the listed segments, from `least` on, rising: all written before this.

        Empty as well when there is no such stream. Where not all are needed, ask for buckets.
        """
        buckets = await self.segment_buckets(name)
        wanted = [one for one in buckets if one >= least // BUCKET_COUNT_MAX]
        found = await self.segment_numbers_in(name, wanted)
        return [number for some in found for number in some if number >= least]

    async def segment_numbers_back(
        self, name: PartitionName, *, highest: int | None = None
    ) -> AsyncGenerator[int, None]:
        """Numbers of the listed segments, falling, from `highest` on or from the last.

        What was written before this call is among them; a bucket is asked for when it is due.
        """
        for bucket in reversed(await self.segment_buckets(name)):
            if highest is None or bucket <= highest // BUCKET_COUNT_MAX:
                (numbers,) = await self.segment_numbers_in(name, [bucket])
                for number in reversed(numbers):
                    if highest is None or number <= highest:
                        yield number

    async def segments_at(
        self, name: PartitionName, numbers: Sequence[int]
    ) -> list[VersionedSegment]:
        """Segments by their numbers, in that order; those that are gone are left out."""
        paths = [self._paths.segment(name, number) for number in numbers]
        return [
            VersionedSegment(
                open_document(one.data, SegmentRecord, path=path), one.version, one.modified_us
            )
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
            if one is not None
        ]

    async def segments(self, name: PartitionName) -> list[VersionedSegment]:
        """The whole list, in order, with all that was written before this call."""
        return await self.segments_at(name, await self.segment_numbers(name))

    async def last_segment(self, name: PartitionName) -> VersionedSegment | None:
        """The last of the list, with all that was written before this call; None if empty.

        It alone may be without an end.
        """
        async with aclosing(self.segment_numbers_back(name)) as numbers:
            async for number in numbers:
                for found in await self.segments_at(name, [number]):
                    return found
        return None

    # The front, which goes for everybody.

    async def trim(self, name: PartitionName) -> TrimRecord:
        """Where the partition begins, with all that was written before this call."""
        return (await self._trim(name))[0]

    async def trim_seen(self, name: PartitionName) -> TrimRecord:
        """The same, as one server of the metadata store has it."""
        return (await self._trim(name, Freshness.NEARBY))[0]

    async def _trim(
        self, name: PartitionName, freshness: Freshness = Freshness.LATEST
    ) -> tuple[TrimRecord, int]:
        path = self._paths.trim(name)
        stored = await self._metadata.find(path, freshness=freshness)
        if stored is None:
            raise no_partition(name)
        return open_document(stored.data, TrimRecord, path=path), stored.version

    async def move_trim(
        self, name: PartitionName, first_sequence: LogSequence, *, now_us: int
    ) -> TrimRecord:
        """Let the partition begin at `first_sequence`, or further on where it does already."""
        while True:
            found, version = await self._trim(name)
            if found.first_sequence >= first_sequence:
                return found
            moved = TrimRecord(first_sequence=first_sequence, trimmed_us=now_us)
            try:
                await self._metadata.put(self._paths.trim(name), seal_document(moved), version)
            except (BadVersionError, NoNodeError):
                continue  # Others moved it meanwhile, or it is gone.
            return moved

    async def drop_trimmed(self, name: PartitionName) -> int:
        """Take from the list the segments that lie before the trim whole, with their ledgers.

        The last segment that has records stays, and those behind it: where the partition goes
        on is known by them. Returns how many went.
        """
        first_sequence = (await self._trim(name))[0].first_sequence
        last = await self.last_segment(name)
        if last is None:
            return 0
        first_sequence = LogSequence(min(first_sequence, last.record.first_sequence - 1))
        dropped_count = 0
        async with aclosing(self.segments_from_first(name)) as listed:
            async for some in listed:
                going = [
                    one
                    for one in some
                    if one.last_sequence is not None and one.last_sequence < first_sequence
                ]
                await self._drop(name, going)
                dropped_count += len(going)
                if len(going) < len(some):
                    break
        await self._drop_empty_buckets(name, last.record.segment)
        return dropped_count

    async def _drop_empty_buckets(self, name: PartitionName, last: int) -> None:
        """Delete the buckets before that of the last segment as far as they are empty.

        Numbers of segments only rise: no owner of this day comes back to them.
        """
        buckets = await self.segment_buckets(name)
        before = [one for one in buckets if one < last // BUCKET_COUNT_MAX]
        for bucket in before:
            try:
                await self._metadata.delete(
                    self._paths.segment_bucket(name, bucket * BUCKET_COUNT_MAX)
                )
            except NoNodeError:
                continue  # Another is at it as well.
            except NotEmptyError:
                return  # From here on there are segments.

    async def drop_all(self, name: PartitionName) -> None:
        """Take all segments from the list, with their ledgers. The partition was deposed."""
        async with aclosing(self.segments_from_first(name)) as listed:
            async for some in listed:
                await self._drop(name, some)

    async def segments_from_first(
        self, name: PartitionName
    ) -> AsyncGenerator[list[SegmentRecord], None]:
        """The list from its front, at most `_AT_ONCE_MAX` segments at a time."""
        count = _AT_FIRST
        for bucket in await self.segment_buckets(name):
            (numbers,) = await self.segment_numbers_in(name, [bucket])
            while numbers:
                asked, numbers = numbers[:count], numbers[count:]
                count = min(2 * count, _AT_ONCE_MAX)
                yield [one.record for one in await self.segments_at(name, asked)]

    async def _drop(self, name: PartitionName, segments: list[SegmentRecord]) -> None:
        """Delete segments with their ledgers, in one step."""
        if not segments:
            return
        try:
            await self._metadata.multi(
                [one for each in segments for one in self._drops(name, each)]
            )
        except NoNodeError:  # Another is at it as well.
            for each in segments:
                await self._drop_quietly(name, each)
        await self._ledgers.drop_empty_buckets([one.ledger for one in segments])

    def _drops(self, name: PartitionName, segment: SegmentRecord) -> list[Operation]:
        return [
            Delete(self._paths.segment(name, segment.segment)),
            self._ledgers.delete(segment.ledger),
        ]

    async def _drop_quietly(self, name: PartitionName, segment: SegmentRecord) -> None:
        for operation in self._drops(name, segment):
            with suppress(NoNodeError):
                await self._metadata.multi([operation])
