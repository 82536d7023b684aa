"""Where partitions begin in metadata, and dropping the segments before that.

Anybody may move a trim, and anybody may drop segments from the front of a list: owners only
append to it.

Rules: PROTOCOL H1, H14 to H16, H20 and S12.
"""

from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial

import attrs
import trio

from geolog.catalog.partition_owners import (
    FindChecks,
    PartitionOwners,
    VersionedOwner,
    no_checks,
    no_owner,
    no_partition,
)
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.catalog.stream_homes import StreamHomes
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Delete,
    Freshness,
    Metadata,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
)
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.stream_state import (
    PartitionName,
    SequenceGap,
    TrimRecord,
)


class PartitionTrims:
    """The trims of one cluster's partitions."""

    def __init__(
        self,
        metadata: Metadata,
        paths: ClusterPaths,
        ledgers: LedgerMetadata,
        segments: SegmentRecords,
        homes: StreamHomes,
        owners: PartitionOwners,
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._ledgers = ledgers
        self._segments = segments
        self._homes = homes
        self._owners = owners

    async def read_latest(self, name: PartitionName) -> TrimRecord:
        """Where the partition begins, including all that was written before this call."""
        return (await self._read(name, Freshness.LATEST))[0]

    async def read(
        self, name: PartitionName, *, changed: trio.Event | None = None
    ) -> TrimRecord:
        """Where the partition begins, as one server of the metadata store has it.

        `changed` is set once, when it begins elsewhere.
        """
        return (await self._read(name, Freshness.NEARBY, changed))[0]

    async def _read(
        self, name: PartitionName, freshness: Freshness, changed: trio.Event | None = None
    ) -> tuple[TrimRecord, int]:
        path = self._paths.trim(name)
        stored = await self._metadata.find(path, changed=changed, freshness=freshness)
        if stored is None:
            raise no_partition(name)
        return open_document(stored.data, TrimRecord, path=path), stored.version

    async def move(
        self,
        name: PartitionName,
        first_sequence: Sequence,
        *,
        now_us: int,
        home_epoch: int | None = None,
        is_mirror: bool = False,
        older_before: Sequence | None = None,
    ) -> TrimRecord:
        """Raise the trim to `first_sequence`; a trim that is higher already stays.

        home_epoch: in which the log is the one at home; FencedError if that has moved.
        older_before: mirrors are to drop records before this one, too, that this log never got.
        """
        while True:
            found, version = await self._read(name, Freshness.LATEST)
            moved = found.raised(first_sequence, older_before=older_before)
            if moved == found:
                return found
            moved = attrs.evolve(moved, trimmed_us=now_us)
            at_home = [] if is_mirror else await self._homes.checks_to_close(name, home_epoch)
            try:
                await self._metadata.multi(
                    [*at_home, Put(self._paths.trim(name), seal_document(moved), version)]
                )
            except (BadVersionError, NoNodeError):
                if not is_mirror:
                    await self._homes.has_changed(name)
                continue  # It or the home was moved meanwhile, or the partition is gone.
            return moved

    async def evict(
        self, mirror: PartitionName, before: Sequence, *, home: PartitionName, home_epoch: int
    ) -> TrimRecord:
        """Let a mirror that ends before this sequence, the beginning of a segment, go on there.

        A mirror that was let go on further already stays so. home_epoch: in which `home` is the
        log at home; FencedError if that has moved. NoSuchStreamError.
        """
        while True:
            found, version = await self._read(mirror, Freshness.LATEST)
            if found.evicted_before >= before:
                return found
            evicted = attrs.evolve(found, evicted_before=before)
            at_home = await self._homes.checks_to_close(home, home_epoch)
            try:
                await self._metadata.multi(
                    [*at_home, Put(self._paths.trim(mirror), seal_document(evicted), version)]
                )
            except (BadVersionError, NoNodeError):
                await self._homes.has_changed(home)
                continue
            return evicted

    async def begin_again(
        self,
        mirror: PartitionName,
        owner: VersionedOwner,
        at: Sequence,
        *,
        ended: Sequence,
        now_us: int,
        find_checks: FindChecks,
    ) -> TrimRecord:
        """Begin a mirror that ended at `ended` again at `at`; note the gap, if there is one.

        Its rows are noted as dropped in the same step; the caller drops them (`drop_noted`), or
        the next owner does. find_checks: finds what else must hold in that step. FencedError if
        another process owns the mirror.
        """

        def begun(found: TrimRecord) -> TrimRecord:
            return attrs.evolve(
                found,
                first_sequence=max(found.first_sequence, at),
                trimmed_us=now_us,
                evicted_before=max(found.evicted_before, at if ended < at else FIRST_SEQUENCE),
                gap=SequenceGap(ended, at) if ended < at else found.gap,
                dropping_through=owner.record.segment_highest,
            )

        return await self._change_owned(mirror, owner, begun, find_checks)

    async def drop_noted(self, mirror: PartitionName, owner: VersionedOwner) -> None:
        """Drop what is left of the rows that a mirror lost when it was begun again, if it was.

        FencedError if another process owns the mirror, as one does that makes it the home.
        """
        # The claim is older than the note that this may have to see.
        if (await self.read(mirror)).dropping_through:
            await self.drop_all(mirror, owner)
            dropped = partial(attrs.evolve, dropping_through=0)
            await self._change_owned(mirror, owner, dropped)

    async def _change_owned(
        self,
        mirror: PartitionName,
        owner: VersionedOwner,
        change: Callable[[TrimRecord], TrimRecord],
        find_checks: FindChecks = no_checks,
    ) -> TrimRecord:
        """Change where a mirror begins, as its owner, while these checks hold. FencedError."""
        while True:
            checks = await find_checks()
            found, version = await self._read(mirror, Freshness.LATEST)
            changed = change(found)
            try:
                await self._metadata.multi(
                    [
                        *checks,
                        *self._owned(mirror, owner),
                        Put(self._paths.trim(mirror), seal_document(changed), version),
                    ]
                )
            except (BadVersionError, NoNodeError):
                await self._check_owner(mirror, owner)
                continue
            return changed

    async def _check_owner(self, name: PartitionName, owner: VersionedOwner) -> None:
        """FencedError unless this is still the owner, as nobody but it may change it."""
        latest = await self._owners.read_latest(name)
        if latest.version != owner.version:
            raise no_owner(name, latest.record)

    async def drop_trimmed(self, name: PartitionName, *, kept: Sequence | None = None) -> int:
        """Delete the segments that lie whole before the trim, with their ledgers.

        kept: a record to be left even so, for a mirror that may end with it.

        The last segment with records stays, and so do those behind it: they say where the
        partition goes on. So do all rows of a segment of which one stays: the state of its
        writers is at its beginning. Returns how many rows were deleted.
        """
        first_sequence = (await self.read_latest(name)).first_sequence
        if kept is not None:
            first_sequence = min(first_sequence, kept)
        last = await self._segments.last(name)
        if last is None:
            return 0
        first_sequence = Sequence(min(first_sequence, last.record.first_sequence - 1))
        dropped_count = 0
        async with aclosing(self._segments.from_first(name)) as listed:
            whole = _WholeSegments(first_sequence)
            async for some in listed:
                going = [gone for one in some for gone in whole.gone_before(one)]
                await self._drop(name, going)
                dropped_count += len(going)
                if whole.is_over:
                    break
        await self._drop_empty_buckets(name, last.record.row_number)
        return dropped_count

    async def _drop_empty_buckets(self, name: PartitionName, last: int) -> None:
        """Delete the empty buckets before that of segment `last`.

        Segment numbers only rise, so no current owner adds to these buckets.
        """
        buckets = await self._segments.buckets(name)
        before = [one for one in buckets if one < last // BUCKET_COUNT_MAX]
        for bucket in before:
            try:
                await self._metadata.delete(
                    self._paths.segment_bucket(name, bucket * BUCKET_COUNT_MAX)
                )
            except NoNodeError:
                continue  # Another process deletes them as well.
            except NotEmptyError:
                return  # From here on there are segments.

    async def drop_all(self, name: PartitionName, owner: VersionedOwner | None = None) -> None:
        """Delete all segments, with their ledgers, of a partition whose owner was deposed.

        owner: of a log that has one, who adds none; FencedError if another process owns it: it
        may be at home by now.
        """
        async with aclosing(self._segments.from_first(name)) as listed:
            async for some in listed:
                await self._drop(name, some, owner)

    async def _drop(
        self,
        name: PartitionName,
        segments: list[VersionedSegment],
        owner: VersionedOwner | None = None,
    ) -> None:
        """Delete segments with their ledgers, in one step, but ledgers that others list."""
        shared = [one for one in segments if one.record.shared_with]
        alone = [one for one in segments if not one.record.shared_with]
        for each in shared:
            await self._drop_row(name, each.record.row_number, owner)
        if not alone:
            return
        try:
            await self._metadata.multi(
                [
                    *self._owned(name, owner),
                    *(one for each in alone for one in self._drops(name, each)),
                ]
            )
        except (BadVersionError, NoNodeError):
            # Another process deletes them as well, or a fork has cut one of them meanwhile.
            for each in alone:
                await self._drop_row(name, each.record.row_number, owner)
        await self._ledgers.drop_empty_buckets([one.record.ledger for one in alone])

    def _owned(self, name: PartitionName, owner: VersionedOwner | None) -> list[Operation]:
        return [] if owner is None else [Check(self._paths.owner(name), owner.version)]

    async def _drop_row(
        self, name: PartitionName, row: int, owner: VersionedOwner | None = None
    ) -> None:
        """Delete a row as it is now; the last list that names its ledger deletes that, too."""
        owned = self._owned(name, owner)
        while found := await self._segments.at(name, [row]):
            if owner is not None:
                await self._check_owner(name, owner)
            segment = found[0].record
            others: list[Operation] = []
            for rest in segment.shared_with:
                other = attrs.evolve(name, rest=rest)
                for one in await self._segments.at(other, [row]):
                    left = tuple(each for each in one.record.shared_with if each != name.rest)
                    kept = seal_document(attrs.evolve(one.record, shared_with=left))
                    others.append(Put(self._paths.segment(other, row), kept, one.version))
            dropped = Delete(self._paths.segment(name, row), found[0].version)
            ends = others or [self._ledgers.delete(segment.ledger)]
            try:
                await self._metadata.multi([*owned, dropped, *ends])
            except BadVersionError:
                continue  # Another list has changed.
            except NoNodeError:  # The row or its ledger is gone already.
                with suppress(BadVersionError, NoNodeError):
                    await self._metadata.multi([*owned, dropped])
                continue
            if not others:
                await self._ledgers.drop_empty_buckets([segment.ledger])

    def _drops(self, name: PartitionName, segment: VersionedSegment) -> list[Operation]:
        return [
            Delete(self._paths.segment(name, segment.record.row_number), segment.version),
            self._ledgers.delete(segment.record.ledger),
        ]


@attrs.define
class _WholeSegments:
    """Finds the rows of the segments that lie whole before a sequence."""

    first_sequence: Sequence
    is_over: bool = False
    _waiting: list[VersionedSegment] = attrs.field(factory=list)
    """Rows of one segment, all before the sequence; its next row may not be."""

    def gone_before(self, found: VersionedSegment) -> list[VersionedSegment]:
        """The rows that turn out to be of such segments as this one follows."""
        if self.is_over:
            return []
        gone: list[VersionedSegment] = []
        row = found.record
        if self._waiting and row.segment != self._waiting[0].record.segment:
            gone, self._waiting = self._waiting, []
        if row.last_sequence is None or row.last_sequence >= self.first_sequence:
            self.is_over = True
        else:
            self._waiting.append(found)
        return gone
