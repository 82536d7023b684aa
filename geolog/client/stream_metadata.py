"""Streams in metadata: their records, owners and lists of segments.

Every change of a partition's list is one multi that also moves, or checks, the version of its
owner record, so that only the owner of the moment can make it.
"""

from contextlib import suppress

import attrs
import trio

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    SessionState,
)
from geolog.protocol.ids import Epoch
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.stream_state import OwnerRecord, SegmentRecord, StreamName, StreamRecord
from topology.errors import (
    ConflictError,
    FencedError,
    GeologError,
    NoSuchStreamError,
    OutcomeUnknownError,
)

GIVE_BACK_S = 2.0
"""How long giving a partition back may take; else that waits for the end of the session."""


class StreamExistsError(ConflictError):
    """A stream of this name exists already: choose another name, or use `--if-not-exists`."""


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


class StreamMetadata:
    """The streams of one cluster, as metadata holds them."""

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

    async def create(self, record: StreamRecord) -> None:
        """Make a stream, with its one partition. StreamExistsError."""
        name = record.name
        await self._metadata.ensure_path(self._paths.namespace(name.namespace))
        try:
            await self._metadata.multi(
                [
                    Create(self._paths.stream(name), seal_document(record)),
                    Create(self._paths.partition(name)),
                    Create(self._paths.owner(name), seal_document(OwnerRecord())),
                    Create(self._paths.sessions(name)),
                    Create(self._paths.segments(name)),
                ]
            )
        except NodeExistsError:
            raise StreamExistsError(
                f"stream {str(name)!r} exists already: choose another name, or say that this is"
                " no error (--if-not-exists)"
            ) from None

    async def read(self, name: StreamName) -> StreamRecord:
        """The stream's settings. NoSuchStreamError."""
        path = self._paths.stream(name)
        stored = await self._metadata.find(path)
        if stored is None:
            await self._metadata.sync(path)  # It may be new, and this server may lag.
            stored = await self._metadata.find(path)
        if stored is None:
            raise NoSuchStreamError(f"there is no stream {str(name)!r}")
        return open_document(stored.data, StreamRecord, path=path)

    async def names(self) -> list[StreamName]:
        """All streams, sorted."""
        found = []
        await self._metadata.sync(self._paths.root)
        for namespace in await self._children(self._paths.streams):
            names = await self._children(self._paths.namespace(namespace))
            found += [StreamName(namespace, name) for name in names]
        return sorted(found)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._metadata.children(path)
        except NoNodeError:
            return []

    async def owner(
        self, name: StreamName, *, changed: trio.Event | None = None
    ) -> VersionedOwner:
        """Who owns the partition, as one server of the metadata store has it.

        `changed` is set once, after the owner or the list of segments changes. It is
        NoSuchStreamError when the stream is gone.
        """
        path = self._paths.owner(name)
        stored = await self._metadata.find(path, changed=changed)
        if stored is None:
            raise NoSuchStreamError(f"there is no stream {str(name)!r}")
        return VersionedOwner(
            open_document(stored.data, OwnerRecord, path=path), stored.version
        )

    async def owner_latest(self, name: StreamName) -> VersionedOwner:
        """The same, with all that was written before this call."""
        await self._metadata.sync(self._paths.owner(name))
        return await self.owner(name)

    async def is_owner_alive(self, owner: OwnerRecord) -> bool:
        """Whether the session of that owner still lives, as far as metadata knows."""
        if not owner.session:
            return False
        await self._metadata.sync(owner.session)
        return await self._metadata.find(owner.session) is not None

    async def take_ownership(self, name: StreamName, who: str) -> VersionedOwner:
        """Become the owner: the next epoch, by compare-and-set, with a session of its own."""
        while True:
            read = await self.owner_latest(name)
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

    async def segments(self, name: StreamName) -> list[VersionedSegment]:
        """The list, in order, with all that was written before this call."""
        await self._metadata.sync(self._paths.segments(name))
        paths: list[str] = []
        for bucket in await self._children(self._paths.segments(name)):
            parent = f"{self._paths.segments(name)}/{bucket}"
            paths += [f"{parent}/{child}" for child in await self._children(parent)]
        found = [
            VersionedSegment(open_document(one.data, SegmentRecord, path=path), one.version)
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
            if one is not None
        ]
        return sorted(found, key=lambda one: one.record.segment)

    async def complete_segment(
        self, name: StreamName, owner: VersionedOwner, segment: VersionedSegment
    ) -> None:
        """Store the end of a segment whose ledger is CLOSED. FencedError if not owner now."""
        path = self._paths.segment(name, segment.record.segment)
        try:
            await self._metadata.multi(
                [
                    Check(self._paths.owner(name), owner.version),
                    Put(path, seal_document(segment.record), segment.version),
                ]
            )
        except BadVersionError:
            raise FencedError(f"another writer owns {name} now") from None

    async def activate(
        self,
        name: StreamName,
        owner: VersionedOwner,
        *,
        closing: ClosingSegment | None,
        opening: VersionedLedger,
        segment: SegmentRecord,
    ) -> tuple[VersionedOwner, VersionedLedger, VersionedSegment]:
        """Close one ledger and open its successor in one step, if still owner.

        FencedError when another owns the partition, or closed the ledger. NoSuchStreamError.
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

    async def _is_listed(self, name: StreamName, segment: SegmentRecord) -> bool:
        stored = await self._metadata.find(self._paths.segment(name, segment.segment))
        return stored is not None and stored.data == seal_document(segment)

    async def _ensure_bucket(self, name: StreamName, segment: int) -> None:
        """Make the bucket, but no parent: a stream that was deleted must not come back."""
        bucket = self._paths.segment_bucket(name, segment)
        if await self._metadata.find(bucket) is not None:
            return
        try:
            await self._metadata.create(bucket)
        except NodeExistsError:
            return
        except NoNodeError:
            raise NoSuchStreamError(f"stream {str(name)!r} was deleted") from None

    async def finish(
        self, name: StreamName, owner: VersionedOwner, closing: ClosingSegment
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
        name: StreamName,
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
        raise FencedError(f"another writer owns {name} now")

    async def _find_missing(self, name: StreamName, opening: VersionedLedger) -> None:
        """What an activation lacked: NoSuchStreamError, or NoSuchLedgerError."""
        await self.owner_latest(name)
        await self._ledgers.read_latest(opening.record.ledger)

    def _close(self, name: StreamName, closing: ClosingSegment) -> list[Operation]:
        return [
            self._ledgers.put(closing.ledger, closing.change.over(closing.ledger.record)),
            Put(
                self._paths.segment(name, closing.completed.segment),
                seal_document(closing.completed),
                closing.segment.version,
            ),
        ]

    async def depose(self, name: StreamName) -> None:
        """Take the stream from its owner, whoever it is: it adds nothing to the list any more.

        NoSuchStreamError.
        """
        await self.read(name)
        while True:
            owner = await self.owner_latest(name)
            deposed = attrs.evolve(
                owner.record, epoch=Epoch(owner.record.epoch + 1), owner="deleted", session=""
            )
            try:
                await self._metadata.put(
                    self._paths.owner(name), seal_document(deposed), owner.version
                )
            except BadVersionError:
                continue  # It changed hands meanwhile.
            return

    async def delete(self, name: StreamName) -> None:
        """Delete a stream that was deposed."""
        for segment in await self.segments(name):
            await self._delete_quietly(self._ledgers.delete(segment.record.ledger).path)
            await self._delete_quietly(self._paths.segment(name, segment.record.segment))
        await self._delete_tree(self._paths.stream(name))

    async def _delete_tree(self, path: str) -> None:
        for child in await self._children(path):
            await self._delete_tree(f"{path}/{child}")
        await self._delete_quietly(path)

    async def _delete_quietly(self, path: str) -> None:
        try:
            await self._metadata.multi([Delete(path)])
        except NoNodeError:
            return
        except NotEmptyError:
            await self._delete_tree(path)
