"""The owner of a partition in metadata: a record whose epoch only rises.

A new owner raises the epoch by compare-and-set, and shows that it is alive by an ephemeral
node. The node disappears with the session that made it; the owner makes it again in the next
session. An owner that leaves deletes the node and clears its record, so that nobody waits for
it to come back. A partition that was sealed, or whose stream is being deleted, never has an
owner again.

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
    """The session that made the owner's node; 0 if not known. Set only by a takeover."""


@attrs.frozen
class OwnerClaim:
    """A request to metadata to take a partition: for one epoch, made once."""

    name: PartitionName
    record: OwnerRecord
    """The owner record if the claim succeeds."""
    mark: bytes
    """The content of the owner's node then; unique among the claims of this process."""


class ClaimListener(Protocol):
    """Hears of each claim before metadata does, so that no outcome of a claim is forgotten."""

    def on_claimed(self, claim: OwnerClaim) -> None:
        """The claim is about to be sent; exactly one of the other calls follows."""
        ...

    def on_taken(self, claim: OwnerClaim, owner: "VersionedOwner") -> None:
        """The claim succeeded."""
        ...

    def on_refused(self, claim: OwnerClaim) -> None:
        """The claim failed, certainly and for good."""
        ...

    def on_in_doubt(self, claim: OwnerClaim) -> None:
        """The claim may succeed, now or later, but is no longer wanted."""
        ...


class NoClaimListener:
    """Forgets claims: their traces in metadata disappear with the session."""

    def on_claimed(self, claim: OwnerClaim) -> None:
        """Do nothing."""

    def on_taken(self, claim: OwnerClaim, owner: "VersionedOwner") -> None:
        """Do nothing."""

    def on_refused(self, claim: OwnerClaim) -> None:
        """Do nothing."""

    def on_in_doubt(self, claim: OwnerClaim) -> None:
        """Do nothing."""


class Revival(Enum):
    """Outcome of showing an owner in a new session."""

    SHOWN = "shown"
    FAILED = "failed"
    """It failed, or the outcome is unknown: ask again."""
    NOWHERE = "nowhere"
    """There is no place for its node: the stream may be gone."""


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
        """The owner record, as one server of the metadata store has it. NoSuchStreamError.

        `changed` is set once, when the owner or the list of segments changes.
        """
        path = self._paths.owner(name)
        stored = await self._metadata.find(path, changed=changed, freshness=freshness)
        if stored is None:
            raise no_partition(name)
        return VersionedOwner(
            open_document(stored.data, OwnerRecord, path=path), stored.version
        )

    async def read_latest(self, name: PartitionName) -> VersionedOwner:
        """The owner record, including all that was written before this call."""
        return await self.read(name, freshness=Freshness.LATEST)

    async def segment_highest_certain(self, name: PartitionName) -> int:
        """The highest segment number ever listed, for certain; 0 if there is none.

        NoSuchStreamError, also while the stream is being deleted.
        """
        found = (await self.read(name, freshness=Freshness.CERTAIN)).record
        if found.is_deleted:
            raise no_owner(name, found)
        return found.segment_highest

    async def check_exists(self, name: PartitionName) -> None:
        """NoSuchStreamError if the stream is gone, or is being deleted."""
        found = (await self.read_latest(name)).record
        if found.is_deleted:
            raise no_owner(name, found)

    async def why_deposed(self, name: PartitionName, owner: OwnerRecord) -> GeologError | None:
        """The error for an owner that was deposed; None if it still owns the partition.

        FencedError, SealedError, NoSuchStreamError.
        """
        try:
            found = (await self.read_latest(name)).record
        except NoSuchStreamError as error:
            return error
        return None if found.epoch == owner.epoch else no_owner(name, found)

    async def is_owner_alive(self, owner: OwnerRecord) -> bool:
        """Whether the owner's session is alive, as far as metadata knows."""
        if not owner.session:
            return False
        found = await self._metadata.find(owner.session, freshness=Freshness.LATEST)
        return found is not None

    async def look_for_owner(
        self, name: PartitionName, *, freshness: Freshness = Freshness.LATEST
    ) -> OwnerLook:
        """The current owner's epoch, and whether the owner is there. NoSuchStreamError."""
        owner = (await self.read(name, freshness=freshness)).record
        if not owner.session:
            return OwnerLook(owner.epoch, OwnerSeen.LEFT)
        # The reads below are at least as new as the owner record.
        if await self._metadata.find(owner.session) is not None:
            return OwnerLook(owner.epoch, OwnerSeen.ALIVE)
        beside = await self._metadata.find(self._paths.sessions(name))
        changes_count = 0 if beside is None else beside.children_changes
        return OwnerLook(owner.epoch, OwnerSeen.MISSING, changes_count)

    async def take_ownership(
        self, name: PartitionName, who: str, claims: ClaimListener | None = None
    ) -> VersionedOwner:
        """Become the owner: take the next epoch by compare-and-set, with an ephemeral node.

        SealedError, NoSuchStreamError. `claims` is told of every claim, however this ends.
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
                # Another process took that epoch: try the next. Or the stream is gone.
                claims.on_refused(claim)
                continue
            except OutcomeUnknownError:
                # The epoch may be ours, or that of another writer of this process, whose record
                # would look the same. Taking one more epoch costs nothing.
                claims.on_in_doubt(claim)
                continue
            except BaseException:
                claims.on_in_doubt(claim)
                raise
            assert isinstance(version, int)
            # A session's requests are never carried out after the next session has begun.
            is_known = self._metadata.session_id == session
            owner = VersionedOwner(taken, version, session if is_known else 0)
            claims.on_taken(claim, owner)
            return owner

    async def release_claim(self, claim: OwnerClaim) -> None:
        """Leave if the claim succeeded. Its mark tells it from other claims of this process.

        The answer comes after the claim's outcome: metadata answers in the order of requests,
        and never carries out a session's requests once the next session has begun. If the
        claim's node disappeared with its session, there is nothing to do: readers do not wait
        for it. NoSuchStreamError.
        """
        node = claim.record.session
        found = await self._metadata.find(node, freshness=Freshness.CERTAIN)
        if found is not None and found.data == claim.mark:
            await self.release_ownership(claim.name, await self.read_latest(claim.name), node)

    async def revive_sessions(self, owners: Sequence[OwnerRecord]) -> list[Revival]:
        """Show in this session that these owners are alive; the outcome for each.

        Usually one request for all; one for each if an older session has left a node, or the
        answer to an earlier request was lost.
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
        """Show in this session that one owner is alive.

        A node of an older session, which will disappear with it, is replaced in one step, so
        readers never miss it. It is this owner's: nobody else ever has its epoch.
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
        """Write to the owner's node, so that the answer tells the metadata store's time.

        Returns whether it does; False if there is no such node, e.g. after a lost session.
        """
        stored = await self._metadata.find(owner.session)
        if stored is None:
            return False
        await self._metadata.put(owner.session, stored.data, stored.version)
        return True

    async def release_ownership(
        self, name: PartitionName, owner: VersionedOwner, node: str | None = None
    ) -> None:
        """Leave, and record it, so that nobody waits for the session to expire.

        Touches nothing of other owners. `node`: the leaving owner's node, if `owner` may be the
        record of a later owner. NoSuchStreamError.
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
                is_shown = False  # It disappeared with its session.
            else:
                return

    # Taking a partition from its owner, for good.

    async def depose(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from any owner, because its stream is being deleted.

        It never has an owner again: records of a new one would be lost with the stream.
        Idempotent. NoSuchStreamError.
        """
        found = await self.read_latest(name)
        if found.record.is_deleted:
            return found
        return await self._dismiss(name, "deleted", is_deleted=True)

    async def seal(self, name: PartitionName) -> VersionedOwner:
        """Take the partition from any owner; it never has an owner again.

        Idempotent. NoSuchStreamError.
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
    """The error for a partition that is gone."""
    return NoSuchStreamError(
        f"stream {str(name.stream)!r} was deleted; if it was created again since, that is a"
        " different stream: open it again"
    )


def no_owner(name: PartitionName, found: OwnerRecord) -> GeologError:
    """The error for a process that does not own the partition; `found` is its owner record."""
    if found.is_deleted:
        return NoSuchStreamError(f"stream {str(name.stream)!r} was deleted")
    if found.is_sealed:
        return SealedError(f"{name.stream} is sealed: it takes no more records")
    by = f" ({found.owner})" if found.owner else ""
    return FencedError(f"another writer{by} owns {name} now")
