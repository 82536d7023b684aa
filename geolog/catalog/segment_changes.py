"""The steps by which an owner changes its partition's list of segments.

Each step is one multi that also moves, or checks, the version of the owner record, so that only
the current owner can take it. At home, steps of a `regional` stream check its home record, too.

Rules: PROTOCOL H1, L8, O3, O4 and O10.
"""

import attrs

from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner, no_owner
from geolog.catalog.segment_records import VersionedSegment
from geolog.catalog.stream_homes import StreamHomes
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.stream_state import PartitionName, SegmentRecord


@attrs.frozen
class ClosingSegment:
    """A ledger and its segment as they were read, and how to make them CLOSED and completed."""

    ledger: VersionedLedger
    change: LedgerChange
    segment: VersionedSegment
    completed: SegmentRecord


class SegmentChanges:
    """Changes the lists of segments of one cluster's partitions, for their owners."""

    def __init__(
        self,
        metadata: Metadata,
        paths: ClusterPaths,
        ledgers: LedgerMetadata,
        owners: PartitionOwners,
        homes: StreamHomes,
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._ledgers = ledgers
        self._owners = owners
        self._homes = homes

    async def complete(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        segment: VersionedSegment,
        *,
        is_mirror: bool = False,
    ) -> None:
        """Store the end of a segment whose ledger is CLOSED. FencedError if not the owner.

        `owner` may be the record of a sealed partition, which no other owner can take. It may
        be a later home that completes what an earlier one left open.
        """
        path = self._paths.segment(name, segment.record.row_number)
        while True:
            at_home = [] if is_mirror else await self._homes.checks_to_close(name)
            try:
                await self._metadata.multi(
                    [
                        *at_home,
                        Check(self._paths.owner(name), owner.version),
                        Put(path, seal_document(segment.record), segment.version),
                    ]
                )
            except (BadVersionError, NoNodeError):
                found = await self._owners.read_latest(name)
                is_ours = found.version == owner.version
                if is_ours and not is_mirror and await self._homes.has_changed(name):
                    continue
                raise no_owner(name, found.record) from None
            return

    async def activate(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        *,
        closing: ClosingSegment | None,
        opening: VersionedLedger,
        segment: SegmentRecord,
        mirror_in: str | None = None,
        outlived_s: float = 0.0,
    ) -> tuple[VersionedOwner, VersionedLedger, VersionedSegment]:
        """Close one ledger and open its successor in one step, if still the owner.

        mirror_in: the region of the log if it is a mirror; None if it is to be at home.
        outlived_s: leases as long are over, of owners that left before this one came.
        FencedError if another process owns the partition, or has closed the ledger.
        SealedError, NoSuchStreamError. NoSuchLedgerError if the successor has expired unused.
        OutcomeUnknownError if metadata gives no answer.
        """
        owned = owner.record.activated(segment.row_number, outlived_s=outlived_s)
        opened = attrs.evolve(
            opening.record.opened(),
            segment=segment.segment,
            first_in_segment=segment.first_entry,
        )
        opens: list[Operation] = [
            Put(self._paths.owner(name), seal_document(owned), owner.version),
            self._ledgers.put(opening, opened),
            Create(self._paths.segment(name, segment.row_number), seal_document(segment)),
        ]
        # The first row of a bucket makes the bucket, but not its parent: a deleted stream must
        # stay deleted.
        row = segment.row_number
        needs_bucket = row == 1 or row % BUCKET_COUNT_MAX == 0
        while True:
            bucket = [Create(self._paths.segment_bucket(name, row))]
            makes = bucket if needs_bucket else []
            closes = [] if closing is None else self._close(name, closing)
            if mirror_in is None:
                at_home = await self._homes.checks_to_open(name, segment.home_epoch)
            else:
                at_home = await self._homes.checks_of_mirror(name, mirror_in)
            try:
                await self._metadata.multi([*at_home, *makes, *opens, *closes])
                break
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                found = await self._owners.read_latest(name)
                # The answer to our own write was lost if this very ledger is listed.
                if found.record == owned and await self._is_listed(name, segment):
                    break
                has_bucket = await self._metadata.find(bucket[0].path) is not None
                if has_bucket == needs_bucket:
                    needs_bucket = not has_bucket
                    continue
                if isinstance(error, NoNodeError):
                    await self._ledgers.read_latest(opening.record.ledger)
                    raise
                is_ours = found.version == owner.version
                if is_ours and await self._homes.has_changed(name):
                    continue
                closing = await self._closing_over(name, owner, found, closing)
        # Each compare-and-set raises a version by one.
        return (
            VersionedOwner(owned, owner.version + 1),
            VersionedLedger(opened, opening.version + 1),
            VersionedSegment(segment, 0),
        )

    async def _is_listed(self, name: PartitionName, segment: SegmentRecord) -> bool:
        stored = await self._metadata.find(self._paths.segment(name, segment.row_number))
        return stored is not None and stored.data == seal_document(segment)

    async def finish(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        closing: ClosingSegment,
        *,
        is_mirror: bool = False,
    ) -> None:
        """Close the last ledger without a successor. FencedError if not the owner."""
        is_owner = Check(self._paths.owner(name), owner.version)
        while True:
            epoch = closing.completed.home_epoch
            at_home = [] if is_mirror else await self._homes.checks_to_close(name, epoch)
            try:
                await self._metadata.multi([*at_home, is_owner, *self._close(name, closing)])
                return
            except NoNodeError:  # The stream was deleted.
                raise no_owner(name, (await self._owners.read_latest(name)).record) from None
            except BadVersionError:
                found = await self._ledgers.read_latest(closing.ledger.record.ledger)
                if closing.change.judge(found.record) is Judgement.STORED:
                    return  # It was our own write, and the answer was lost.
                if not is_mirror and await self._homes.has_changed(name):
                    continue
                again = await self._closing_over(
                    name, owner, await self._owners.read_latest(name), closing
                )
                assert again is not None
                closing = again

    async def _closing_over(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        found: VersionedOwner,
        closing: ClosingSegment | None,
    ) -> ClosingSegment | None:
        """After a conflict: the same close over the ledger's new record. FencedError."""
        if closing is not None and found.version == owner.version:
            ledger = await self._ledgers.read_latest(closing.ledger.record.ledger)
            is_merged = closing.change.judge(ledger.record) is Judgement.TRY_AGAIN
            if is_merged and ledger.version != closing.ledger.version:
                return attrs.evolve(closing, ledger=ledger)
        raise no_owner(name, found.record)

    def _close(self, name: PartitionName, closing: ClosingSegment) -> list[Operation]:
        return [
            self._ledgers.put(closing.ledger, closing.change.over(closing.ledger.record)),
            Put(
                self._paths.segment(name, closing.completed.row_number),
                seal_document(closing.completed),
                closing.segment.version,
            ),
        ]
