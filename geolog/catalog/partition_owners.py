"""The owner of a partition in metadata: a record whose epoch only rises.

A new owner raises the epoch by compare-and-set, and shows by an ephemeral node
that it lives. The node goes with the session in which it was made; the owner makes it again in
the next. An owner that leaves takes it away, and says so in its record: then nobody waits for
it to come back. A partition that was sealed, or whose stream is being deleted, has no owner
ever after.

Rules: PROTOCOL M2, O1, O9, O13 and O14.
"""

import itertools
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Protocol

import attrs
import trio

from geolog.background import all_of
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)
from geolog.protocol.ids import Epoch
from geolog.protocol.owner_absence import OwnerLook, OwnerSeen
from geolog.protocol.stream_state import OwnerRecord, PartitionName
from topology.errors import (
    FencedError,
    GeologError,
    NoSuchStreamError,
    OutcomeUnknownError,
    SealedError,
)


@attrs.frozen
class VersionedOwner:
    """An owner record as it was read or written."""

    record: OwnerRecord
    version: int
    shown_in: int = attrs.field(default=0, eq=False)
    """Of an owner that was just taken: the session of its node, if that is known."""


@attrs.frozen
class OwnerClaim:
    """What metadata is asked for when a partition is to be taken: an epoch, once."""

    name: PartitionName
    record: OwnerRecord
    """The owner's, if the claim is met."""
    mark: bytes
    """What its node holds then; no other claim of this process has it."""


class ClaimListener(Protocol):
    """Hears of claims before metadata does, so that what comes of them is never forgotten."""

    def on_claimed(self, claim: OwnerClaim) -> None:
        """It is asked for from now on; one of the others follows."""
        ...

    def on_taken(self, claim: OwnerClaim, owner: "VersionedOwner") -> None:
        """It was met."""
        ...

    def on_refused(self, claim: OwnerClaim) -> None:
        """It was not met, for certain, and never will be."""
        ...

    def on_in_doubt(self, claim: OwnerClaim) -> None:
        """It may be met, now or later, and is not wanted any more."""
        ...


class NoClaimListener:
    """Forgets claims: what comes of them goes with the session."""

    def on_claimed(self, claim: OwnerClaim) -> None:
        """Nothing."""

    def on_taken(self, claim: OwnerClaim, owner: "VersionedOwner") -> None:
        """Nothing."""

    def on_refused(self, claim: OwnerClaim) -> None:
        """Nothing."""

    def on_in_doubt(self, claim: OwnerClaim) -> None:
        """Nothing."""


class Revival(Enum):
    """What came of showing an owner in a new session."""

    SHOWN = "shown"
    FAILED = "failed"
    """Or the outcome is not known: ask again."""
    NOWHERE = "nowhere"
    """There is nowhere to make its node: the stream may be gone."""


class PartitionOwners:
    """The owners of one cluster's partitions."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths
        self._takes = itertools.count(1)

    async def read(
        self,
        name: PartitionName,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedOwner:
        """Who owns the partition, as one server of the metadata store has it.

        `changed` is set once, after the owner or the list of segments changes. It is
        NoSuchStreamError when the stream is gone.
        """
        path = self._paths.owner(name)
        stored = await self._metadata.find(path, changed=changed, freshness=freshness)
        if stored is None:
            raise no_partition(name)
        return VersionedOwner(
            open_document(stored.data, OwnerRecord, path=path), stored.version
        )

    async def read_latest(self, name: PartitionName) -> VersionedOwner:
        """The same, with all that was written before this call."""
        return await self.read(name, freshness=Freshness.LATEST)

    async def segment_highest_certain(self, name: PartitionName) -> int:
        """The number of the last segment that was ever listed, for certain; 0 if there is none.

        NoSuchStreamError, also while the stream is being deleted.
        """
        found = (await self.read(name, freshness=Freshness.CERTAIN)).record
        if found.is_deleted:
            raise no_owner(name, found)
        return found.segment_highest

    async def check_exists(self, name: PartitionName) -> None:
        """NoSuchStreamError if its stream is gone, or is being deleted."""
        found = (await self.read_latest(name)).record
        if found.is_deleted:
            raise no_owner(name, found)

    async def why_deposed(self, name: PartitionName, owner: OwnerRecord) -> GeologError | None:
        """What tells whoever was this owner that it is no more; None if it still is.

        FencedError, SealedError, NoSuchStreamError.
        """
        try:
            found = (await self.read_latest(name)).record
        except NoSuchStreamError as error:
            return error
        return None if found.epoch == owner.epoch else no_owner(name, found)

    async def is_owner_alive(self, owner: OwnerRecord) -> bool:
        """Whether the session of that owner still lives, as far as metadata knows."""
        if not owner.session:
            return False
        found = await self._metadata.find(owner.session, freshness=Freshness.LATEST)
        return found is not None

    async def look_for_owner(
        self, name: PartitionName, *, freshness: Freshness = Freshness.LATEST
    ) -> OwnerLook:
        """The epoch of the current owner, and whether it is there. NoSuchStreamError."""
        owner = (await self.read(name, freshness=freshness)).record
        if not owner.session:
            return OwnerLook(owner.epoch, OwnerSeen.LEFT)
        # What follows is as new as the owner's record.
        if await self._metadata.find(owner.session) is not None:
            return OwnerLook(owner.epoch, OwnerSeen.ALIVE)
        beside = await self._metadata.find(self._paths.sessions(name))
        changes_count = 0 if beside is None else beside.children_changes
        return OwnerLook(owner.epoch, OwnerSeen.MISSING, changes_count)

    async def take_ownership(
        self, name: PartitionName, who: str, claims: ClaimListener | None = None
    ) -> VersionedOwner:
        """Become the owner: the next epoch, by compare-and-set, with a session of its own.

        SealedError, NoSuchStreamError. `claims` hears of all that may come of it, however this
        ends.
        """
        claims = NoClaimListener() if claims is None else claims
        while True:
            read = await self.read_latest(name)
            if read.record.is_sealed or read.record.is_deleted:
                raise no_owner(name, read.record)
            epoch = Epoch(read.record.epoch + 1)
            node = self._paths.session(name, epoch)
            taken = attrs.evolve(read.record, epoch=epoch, owner=who, session=node)
            claim = OwnerClaim(name, taken, f"{who} {next(self._takes)}".encode())
            session = self._metadata.session_id
            claims.on_claimed(claim)
            try:
                _, version = await self._metadata.multi(
                    [
                        Create(node, claim.mark, is_ephemeral=True),
                        Put(self._paths.owner(name), seal_document(taken), read.version),
                    ]
                )
            except (BadVersionError, NodeExistsError, NoNodeError):
                # Another took that epoch: take the next. Or the stream is gone.
                claims.on_refused(claim)
                continue
            except OutcomeUnknownError:
                # The epoch may be ours, or that of another writer of this process, which would
                # look the same. An epoch more costs nothing.
                claims.on_in_doubt(claim)
                continue
            except BaseException:
                claims.on_in_doubt(claim)
                raise
            assert isinstance(version, int)
            # What was asked in a session is not carried out in the next.
            is_known = self._metadata.session_id == session
            owner = VersionedOwner(taken, version, session if is_known else 0)
            claims.on_taken(claim, owner)
            return owner

    async def release_claim(self, claim: OwnerClaim) -> None:
        """Leave, if the claim was met: by its mark, not as another of this process.

        The answer comes after whatever became of the claim: metadata answers in the order in
        which it was asked, and what a session asked is not carried out once the next has begun.
        A node of it that went with its session is nobody's: readers do not wait for it.
        NoSuchStreamError.
        """
        node = claim.record.session
        found = await self._metadata.find(node, freshness=Freshness.CERTAIN)
        if found is not None and found.data == claim.mark:
            await self.release_ownership(claim.name, await self.read_latest(claim.name), node)

    async def revive_sessions(self, owners: Sequence[OwnerRecord]) -> list[Revival]:
        """Show in this session that these owners live; what came of it, for each.

        One request does for all, unless an older session has left something of one of them, or
        the answer to an earlier request was lost.
        """
        try:
            await self._metadata.multi(
                [
                    Create(owner.session, owner.owner.encode(), is_ephemeral=True)
                    for owner in owners
                ]
            )
        except (NodeExistsError, NoNodeError):
            return await all_of([partial(self.revive_session, owner) for owner in owners])
        return [Revival.SHOWN] * len(owners)

    async def revive_session(self, owner: OwnerRecord) -> Revival:
        """The same of one.

        A node of an older session, which will go with it, gives way in the same step: it is
        this owner's, as nobody else ever has its epoch, and readers never miss it.
        """
        node = owner.session
        creates: list[Operation] = [Create(node, owner.owner.encode(), is_ephemeral=True)]
        try:
            found = await self._metadata.find(node)
            if found is not None and found.session_id == self._metadata.session_id:
                return Revival.SHOWN
            leftovers: list[Operation] = [] if found is None else [Delete(node)]
            await self._metadata.multi([*leftovers, *creates])
        except NoNodeError:
            return Revival.NOWHERE
        except GeologError:
            return Revival.FAILED
        return Revival.SHOWN

    async def ask_time(self, owner: OwnerRecord) -> bool:
        """Write where that owner shows that it lives: the answer says the store's time.

        Returns whether it does; False if nothing is there, as when its session was lost.
        """
        stored = await self._metadata.find(owner.session)
        if stored is None:
            return False
        await self._metadata.put(owner.session, stored.data, stored.version)
        return True

    async def release_ownership(
        self, name: PartitionName, owner: VersionedOwner, node: str | None = None
    ) -> None:
        """Leave, and say so: nobody needs to wait for the session to expire, or for the owner.

        Nothing of another owner is touched. `node` is that of the owner that leaves, if the
        record may be of a later one. NoSuchStreamError.
        """
        node = owner.record.session if node is None else node
        found, is_shown = owner, True
        while True:
            says: list[Operation] = []
            if found.record.session == node:
                left = attrs.evolve(found.record, session="")
                says = [Put(self._paths.owner(name), seal_document(left), found.version)]
            hides: list[Operation] = [Delete(node)] if is_shown else []
            if not says and not hides:
                return
            try:
                await self._metadata.multi([*says, *hides])
            except BadVersionError:
                found = await self.read_latest(name)
            except NoNodeError:
                if not is_shown:
                    return  # The stream is gone.
                is_shown = False  # It went with its session.
            else:
                return

    # Taking a partition from its owner for good.

    async def depose(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from its owner, whoever it is, as its stream is being deleted.

        It has none ever after: what a new one wrote would go unseen, or stay without a stream.
        Whoever deposes it a second time gets what the first left. NoSuchStreamError.
        """
        found = await self.read_latest(name)
        if found.record.is_deleted:
            return found
        return await self._dismiss(name, "deleted", is_deleted=True)

    async def seal(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from its owner, whoever it is; it has none ever after.

        Whoever seals it a second time gets what the first left. NoSuchStreamError.
        """
        found = await self.read_latest(name)
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
            read = await self.read_latest(name)
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
