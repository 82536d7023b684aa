"""A partition in metadata: its owner, its list of segments, and the steps that change both.

Every change of the list is one multi that also moves, or checks, the version of the owner
record, so that only the owner of the moment can make it. Only what was trimmed is taken from
the front of the list by anybody: the owner never touches it.

Rules: PROTOCOL L8, O3, O4 and O10.
"""

import attrs

from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner, no_owner
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    HeardTime,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionState,
)
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.stream_state import PartitionName, SegmentRecord


@attrs.frozen
class ClosingSegment:
    """A ledger and its segment as they were read, and as they are to be: CLOSED, completed."""

    ledger: VersionedLedger
    change: LedgerChange
    segment: VersionedSegment
    completed: SegmentRecord


class PartitionMetadata(PartitionOwners, SegmentRecords):
    """The partitions of one cluster's streams, as metadata holds them."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, ledgers: LedgerMetadata
    ) -> None:
        PartitionOwners.__init__(self, metadata, paths)
        SegmentRecords.__init__(self, metadata, paths, ledgers)

    @property
    def is_reachable(self) -> bool:
        """Whether the metadata store can be asked, as far as this process knows."""
        return self._metadata.session_state is SessionState.CONNECTED

    async def wait_back(self) -> None:
        """Wait until the metadata store can be reached again, after it could not."""
        state = self._metadata.session_state
        while True:
            state = await self._metadata.wait_state_change(state)
            if state is SessionState.CONNECTED:
                return

    @property
    def session_timeout_s(self) -> float:
        """How long a session lives of which the metadata store hears nothing."""
        return self._metadata.session_timeout_s

    @property
    def time_heard(self) -> HeardTime | None:
        """What the metadata store's clock said last; never None to an owner."""
        return self._metadata.time_heard

    async def complete_segment(
        self, name: PartitionName, owner: VersionedOwner, segment: VersionedSegment
    ) -> None:
        """Store the end of a segment whose ledger is CLOSED. FencedError if not owner now.

        An owner that is gone for good has nobody to take its place: `owner` may be sealed.
        """
        path = self._paths.segment(name, segment.record.segment)
        try:
            await self._metadata.multi(
                [
                    Check(self._paths.owner(name), owner.version),
                    Put(path, seal_document(segment.record), segment.version),
                ]
            )
        except (BadVersionError, NoNodeError):
            raise no_owner(name, (await self.owner_latest(name)).record) from None

    async def activate(
        self,
        name: PartitionName,
        owner: VersionedOwner,
        *,
        closing: ClosingSegment | None,
        opening: VersionedLedger,
        segment: SegmentRecord,
    ) -> tuple[VersionedOwner, VersionedLedger, VersionedSegment]:
        """Close one ledger and open its successor in one step, if still owner.

        FencedError when another owns the partition, or closed the ledger. SealedError,
        NoSuchStreamError.
        NoSuchLedgerError when the successor was made so long ago that it expired.
        OutcomeUnknownError while metadata does not say.
        """
        owned = attrs.evolve(owner.record, segment_highest=segment.segment)
        opened = attrs.evolve(opening.record.opened(), segment=segment.segment)
        opens: list[Operation] = [
            Put(self._paths.owner(name), seal_document(owned), owner.version),
            self._ledgers.put(opening, opened),
            Create(self._paths.segment(name, segment.segment), seal_document(segment)),
        ]
        # The first of a bucket makes it, but no parent: a stream that was deleted stays so.
        needs_bucket = segment.segment == 1 or segment.segment % BUCKET_COUNT_MAX == 0
        while True:
            bucket = [Create(self._paths.segment_bucket(name, segment.segment))]
            makes = bucket if needs_bucket else []
            closes = [] if closing is None else self._close(name, closing)
            try:
                await self._metadata.multi([*makes, *opens, *closes])
                break
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                found = await self.owner_latest(name)
                # Our own write, whose answer was lost, listed this very ledger.
                if found.record == owned and await self._is_listed(name, segment):
                    break
                has_bucket = await self._metadata.find(bucket[0].path) is not None
                if has_bucket == needs_bucket:
                    needs_bucket = not has_bucket
                    continue
                if isinstance(error, NoNodeError):
                    await self._ledgers.read_latest(opening.record.ledger)
                    raise
                closing = await self._closing_over(name, owner, found, closing)
        # Each compare-and-set raises a version by one.
        return (
            VersionedOwner(owned, owner.version + 1),
            VersionedLedger(opened, opening.version + 1),
            VersionedSegment(segment, 0),
        )

    async def _is_listed(self, name: PartitionName, segment: SegmentRecord) -> bool:
        stored = await self._metadata.find(self._paths.segment(name, segment.segment))
        return stored is not None and stored.data == seal_document(segment)

    async def finish(
        self, name: PartitionName, owner: VersionedOwner, closing: ClosingSegment
    ) -> None:
        """Close the last ledger without a successor, if still owner. FencedError if not."""
        is_owner = Check(self._paths.owner(name), owner.version)
        while True:
            try:
                await self._metadata.multi([is_owner, *self._close(name, closing)])
                return
            except NoNodeError:  # The stream was deleted.
                raise no_owner(name, (await self.owner_latest(name)).record) from None
            except BadVersionError:
                found = await self._ledgers.read_latest(closing.ledger.record.ledger)
                if closing.change.judge(found.record) is Judgement.STORED:
                    return  # Our own write, whose answer was lost.
                again = await self._closing_over(
                    name, owner, await self.owner_latest(name), closing
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
        """After a conflict: the same over what others changed of the ledger. FencedError."""
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
                self._paths.segment(name, closing.completed.segment),
                seal_document(closing.completed),
                closing.segment.version,
            ),
        ]
