"""A partition in metadata: its owner, its list of segments, and where it begins.

Every change of the list is one multi that also moves, or checks, the version of the owner
record, so that only the owner of the moment can make it. Only what was trimmed is taken from
the front of the list by anybody: the owner never touches it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import attrs
import trio

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import BUCKET_COUNT_MAX, ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionState,
)
from geolog.protocol.ids import Epoch
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    TrimRecord,
)
from topology.errors import (
    FencedError,
    GeologError,
    NoSuchStreamError,
    OutcomeUnknownError,
    SealedError,
)

GIVE_BACK_S = 2.0
"""How long giving a partition back may take; else that waits for the end of the session."""

_DELETED_AT_ONCE = 32
"""Segments whose records go in one step."""


@attrs.frozen
class VersionedOwner:
    """An owner record as it was read or written."""

    record: OwnerRecord
    version: int


@attrs.frozen
class VersionedSegment:
    """A segment's record as it was read or written."""

    record: SegmentRecord
    version: int


@attrs.frozen
class ClosingSegment:
    """A ledger and its segment as they were read, and as they are to be: CLOSED, completed."""

    ledger: VersionedLedger
    change: LedgerChange
    segment: VersionedSegment
    completed: SegmentRecord


class PartitionMetadata:
    """The partitions of one cluster's streams, as metadata holds them."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, ledgers: LedgerMetadata
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._ledgers = ledgers

    @property
    def is_reachable(self) -> bool:
        """Whether the metadata store can be asked, as far as this process knows."""
        return self._metadata.session_state is SessionState.CONNECTED

    async def owner(
        self, name: PartitionName, *, changed: trio.Event | None = None
    ) -> VersionedOwner:
        """Who owns the partition, as one server of the metadata store has it.

        `changed` is set once, after the owner or the list of segments changes. It is
        NoSuchStreamError when the stream is gone.
        """
        path = self._paths.owner(name)
        stored = await self._metadata.find(path, changed=changed)
        if stored is None:
            raise NoSuchStreamError(f"there is no stream {str(name.stream)!r}")
        return VersionedOwner(
            open_document(stored.data, OwnerRecord, path=path), stored.version
        )

    async def owner_latest(self, name: PartitionName) -> VersionedOwner:
        """The same, with all that was written before this call."""
        await self._metadata.sync(self._paths.owner(name))
        return await self.owner(name)

    async def check_exists(self, name: PartitionName) -> None:
        """NoSuchStreamError if its stream is gone, or is being deleted."""
        found = (await self.owner_latest(name)).record
        if found.is_deleted:
            raise _no_owner(name, found)

    async def why_deposed(self, name: PartitionName, owner: OwnerRecord) -> GeologError | None:
        """What tells whoever was this owner that it is no more; None if it still is.

        FencedError, SealedError, NoSuchStreamError.
        """
        try:
            found = (await self.owner_latest(name)).record
        except NoSuchStreamError as error:
            return error
        return None if found.epoch == owner.epoch else _no_owner(name, found)

    async def is_owner_alive(self, owner: OwnerRecord) -> bool:
        """Whether the session of that owner still lives, as far as metadata knows."""
        if not owner.session:
            return False
        await self._metadata.sync(owner.session)
        return await self._metadata.find(owner.session) is not None

    async def take_ownership(self, name: PartitionName, who: str) -> VersionedOwner:
        """Become the owner: the next epoch, by compare-and-set, with a session of its own.

        SealedError, NoSuchStreamError.
        """
        while True:
            read = await self.owner_latest(name)
            if read.record.is_sealed or read.record.is_deleted:
                raise _no_owner(name, read.record)
            epoch = Epoch(read.record.epoch + 1)
            session = self._paths.session(name, epoch)
            taken = attrs.evolve(read.record, epoch=epoch, owner=who, session=session)
            try:
                _, version = await self._metadata.multi(
                    [
                        Create(session, who.encode(), is_ephemeral=True),
                        Put(self._paths.owner(name), seal_document(taken), read.version),
                    ]
                )
            except (BadVersionError, NodeExistsError):
                continue  # Another took that epoch: take the next.
            except OutcomeUnknownError:
                # The epoch may be ours, or that of another writer of this process, which would
                # look the same. An epoch more costs nothing.
                continue
            except trio.Cancelled:
                with trio.move_on_after(GIVE_BACK_S, shield=True), suppress(GeologError):
                    if (found := await self.owner_latest(name)).record == taken:
                        await self.release_ownership(found)
                raise
            assert isinstance(version, int)
            return VersionedOwner(taken, version)

    async def revive_session(self, owner: OwnerRecord) -> bool:
        """After a session was lost and another began: show again that this owner lives.

        False while the lost session's node is still there: it will go, so try again.
        """
        try:
            await self._metadata.create(owner.session, owner.owner.encode(), is_ephemeral=True)
        except NodeExistsError:
            return False
        return True

    async def release_ownership(self, owner: VersionedOwner) -> None:
        """Leave: nobody needs to wait for the session to expire."""
        try:
            await self._metadata.delete(owner.record.session)
        except NoNodeError:
            return

    # The list of segments.

    async def segment_numbers(self, name: PartitionName, *, least: int = 1) -> list[int]:
        """Numbers of the listed segments, from `least` on, rising: all written before this.

        Empty as well when there is no such stream.
        """
        parent = self._paths.segments(name)
        await self._metadata.sync(parent)
        numbers: list[int] = []
        for bucket in await self._children(parent):
            if (int(bucket) + 1) * BUCKET_COUNT_MAX > least:
                numbers += map(int, await self._children(f"{parent}/{bucket}"))
        return sorted(number for number in numbers if number >= least)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._metadata.children(path)
        except NoNodeError:
            return []

    async def segments_at(
        self, name: PartitionName, numbers: Sequence[int]
    ) -> list[VersionedSegment]:
        """Segments by their numbers, in that order; those that are gone are left out."""
        paths = [self._paths.segment(name, number) for number in numbers]
        return [
            VersionedSegment(open_document(one.data, SegmentRecord, path=path), one.version)
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
        parent = self._paths.segments(name)
        await self._metadata.sync(parent)
        for bucket in reversed(await self._children(parent)):
            for number in reversed(await self._children(f"{parent}/{bucket}")):
                for found in await self.segments_at(name, [int(number)]):
                    return found
        return None

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
        except BadVersionError:
            raise _no_owner(name, (await self.owner_latest(name)).record) from None

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
        await self._ensure_bucket(name, segment.segment)
        owned = attrs.evolve(owner.record, segment_highest=segment.segment)
        opened = attrs.evolve(opening.record.opened(), segment=segment.segment)
        opens: list[Operation] = [
            Put(self._paths.owner(name), seal_document(owned), owner.version),
            self._ledgers.put(opening, opened),
            Create(self._paths.segment(name, segment.segment), seal_document(segment)),
        ]
        while True:
            closes = [] if closing is None else self._close(name, closing)
            try:
                await self._metadata.multi([*opens, *closes])
            except (BadVersionError, NodeExistsError):
                found = await self.owner_latest(name)
                # Our own write, whose answer was lost, listed this very ledger.
                if found.record != owned or not await self._is_listed(name, segment):
                    closing = await self._closing_over(name, owner, found, closing)
                    continue
            except NoNodeError:
                await self._find_missing(name, opening)
                raise
            # Each compare-and-set raises a version by one.
            return (
                VersionedOwner(owned, owner.version + 1),
                VersionedLedger(opened, opening.version + 1),
                VersionedSegment(segment, 0),
            )

    async def _is_listed(self, name: PartitionName, segment: SegmentRecord) -> bool:
        stored = await self._metadata.find(self._paths.segment(name, segment.segment))
        return stored is not None and stored.data == seal_document(segment)

    async def _ensure_bucket(self, name: PartitionName, segment: int) -> None:
        """Make the bucket, but no parent: a stream that was deleted must not come back."""
        bucket = self._paths.segment_bucket(name, segment)
        if await self._metadata.find(bucket) is not None:
            return
        try:
            await self._metadata.create(bucket)
        except NodeExistsError:
            return
        except NoNodeError:
            raise NoSuchStreamError(f"stream {str(name.stream)!r} was deleted") from None

    async def finish(
        self, name: PartitionName, owner: VersionedOwner, closing: ClosingSegment
    ) -> None:
        """Close the last ledger without a successor, if still owner. FencedError if not."""
        is_owner = Check(self._paths.owner(name), owner.version)
        while True:
            try:
                await self._metadata.multi([is_owner, *self._close(name, closing)])
                return
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
        raise _no_owner(name, found.record)

    async def _find_missing(self, name: PartitionName, opening: VersionedLedger) -> None:
        """What an activation lacked: NoSuchStreamError, or NoSuchLedgerError."""
        await self.owner_latest(name)
        await self._ledgers.read_latest(opening.record.ledger)

    def _close(self, name: PartitionName, closing: ClosingSegment) -> list[Operation]:
        return [
            self._ledgers.put(closing.ledger, closing.change.over(closing.ledger.record)),
            Put(
                self._paths.segment(name, closing.completed.segment),
                seal_document(closing.completed),
                closing.segment.version,
            ),
        ]

    # Taking a partition from its owner for good, and its front from everybody.

    async def depose(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from its owner, whoever it is, as its stream is being deleted.

        It has none ever after: what a new one wrote would go unseen, or stay without a stream.
        Whoever deposes it a second time gets what the first left. NoSuchStreamError.
        """
        found = await self.owner_latest(name)
        if found.record.is_deleted:
            return found
        return await self._dismiss(name, "deleted", is_deleted=True)

    async def seal(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from its owner, whoever it is; it has none ever after.

        Whoever seals it a second time gets what the first left. NoSuchStreamError.
        """
        found = await self.owner_latest(name)
        if found.record.is_sealed:
            return found
        return await self._dismiss(name, "sealed", is_sealed=True)

    async def _dismiss(
        self,
        name: PartitionName,
        why: str,
        *,
        is_sealed: bool = False,
        is_deleted: bool = False,
    ) -> VersionedOwner:
        while True:
            read = await self.owner_latest(name)
            if read.record.is_deleted and not is_deleted:
                raise _no_owner(name, read.record)
            dismissed = attrs.evolve(
                read.record,
                epoch=Epoch(read.record.epoch + 1),
                owner=why,
                session="",
                is_sealed=is_sealed or read.record.is_sealed,
                is_deleted=is_deleted,
            )
            try:
                version = await self._metadata.put(
                    self._paths.owner(name), seal_document(dismissed), read.version
                )
            except BadVersionError:
                continue  # It changed hands meanwhile.
            return VersionedOwner(dismissed, version)

    async def trim(self, name: PartitionName) -> TrimRecord:
        """Where the partition begins, with all that was written before this call."""
        return (await self._trim(name))[0]

    async def _trim(self, name: PartitionName) -> tuple[TrimRecord, int]:
        path = self._paths.trim(name)
        await self._metadata.sync(path)
        stored = await self._metadata.find(path)
        if stored is None:
            raise NoSuchStreamError(f"there is no stream {str(name.stream)!r}")
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
            except BadVersionError:
                continue
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
        async with aclosing(self._segments_from_first(name)) as listed:
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
        return dropped_count

    async def drop_all(self, name: PartitionName) -> None:
        """Take all segments from the list, with their ledgers. The partition was deposed."""
        await self._metadata.sync(self._paths.segments(name))
        async with aclosing(self._segments_from_first(name)) as listed:
            async for some in listed:
                await self._drop(name, some)

    async def _segments_from_first(
        self, name: PartitionName
    ) -> AsyncGenerator[list[SegmentRecord], None]:
        """The list from its front, as many segments at a time as go in one step."""
        parent = self._paths.segments(name)
        for bucket in await self._children(parent):
            numbers = [int(number) for number in await self._children(f"{parent}/{bucket}")]
            for start in range(0, len(numbers), _DELETED_AT_ONCE):
                asked = numbers[start : start + _DELETED_AT_ONCE]
                yield [one.record for one in await self.segments_at(name, asked)]

    async def _drop(self, name: PartitionName, segments: list[SegmentRecord]) -> None:
        """Delete segments with their ledgers, in one step."""
        try:
            await self._metadata.multi(
                [one for each in segments for one in self._drops(name, each)]
            )
        except NoNodeError:  # Another is at it as well.
            for each in segments:
                await self._drop_quietly(name, each)

    def _drops(self, name: PartitionName, segment: SegmentRecord) -> list[Operation]:
        return [
            Delete(self._paths.segment(name, segment.segment)),
            self._ledgers.delete(segment.ledger),
        ]

    async def _drop_quietly(self, name: PartitionName, segment: SegmentRecord) -> None:
        for operation in self._drops(name, segment):
            with suppress(NoNodeError):
                await self._metadata.multi([operation])


def _no_owner(name: PartitionName, found: OwnerRecord) -> GeologError:
    """Why whoever asked does not own the partition, whose record is `found`."""
    if found.is_deleted:
        return NoSuchStreamError(f"stream {str(name.stream)!r} was deleted")
    if found.is_sealed:
        return SealedError(f"{name.stream} is sealed: nothing is appended to it any more")
    by = f" ({found.owner})" if found.owner else ""
    return FencedError(f"another writer{by} owns {name} now")
