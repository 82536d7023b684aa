"""Who owns a partition, as metadata holds it: a record whose epoch only rises.

Whoever takes a partition raises its epoch by compare-and-set, and shows by an ephemeral node
that it lives. A partition that was sealed, or whose stream is being deleted, has no owner ever
after.
"""

from contextlib import suppress

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Put,
)
from geolog.protocol.ids import Epoch
from geolog.protocol.stream_state import OwnerRecord, PartitionName
from topology.errors import (
    FencedError,
    GeologError,
    NoSuchStreamError,
    OutcomeUnknownError,
    SealedError,
)

GIVE_BACK_S = 2.0
"""How long giving a partition back may take; else that waits for the end of the session."""


@attrs.frozen
class VersionedOwner:
    """An owner record as it was read or written."""

    record: OwnerRecord
    version: int


class PartitionOwners:
    """The owners of one cluster's partitions."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

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
            raise no_partition(name)
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
            raise no_owner(name, found)

    async def why_deposed(self, name: PartitionName, owner: OwnerRecord) -> GeologError | None:
        """What tells whoever was this owner that it is no more; None if it still is.

        FencedError, SealedError, NoSuchStreamError.
        """
        try:
            found = (await self.owner_latest(name)).record
        except NoSuchStreamError as error:
            return error
        return None if found.epoch == owner.epoch else no_owner(name, found)

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
                raise no_owner(name, read.record)
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
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # Another took that epoch: take the next. Or the stream is gone.
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

    # Taking a partition from its owner for good.

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
                raise no_owner(name, read.record)
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
            except (BadVersionError, NoNodeError):
                continue  # It changed hands meanwhile, or is gone.
            return VersionedOwner(dismissed, version)


def no_partition(name: PartitionName) -> NoSuchStreamError:
    """What whoever knew the partition hears when it is gone."""
    return NoSuchStreamError(
        f"stream {str(name.stream)!r} was deleted; one of that name that was made since is"
        " another: open it anew"
    )


def no_owner(name: PartitionName, found: OwnerRecord) -> GeologError:
    """Why whoever asked does not own the partition, whose record is `found`."""
    if found.is_deleted:
        return NoSuchStreamError(f"stream {str(name.stream)!r} was deleted")
    if found.is_sealed:
        return SealedError(f"{name.stream} is sealed: nothing is appended to it any more")
    by = f" ({found.owner})" if found.owner else ""
    return FencedError(f"another writer{by} owns {name} now")
