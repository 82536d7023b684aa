"""The owner of a partition in metadata: a record whose epoch only rises.

A new owner raises the epoch by compare-and-set, and names the ephemeral node that shows that
its process is alive (`ProcessPresence`). That node must exist in the same step, so no record
names one that was never there. An owner that leaves clears its record, so that nobody waits for
it to come back; the node stays, for the other owners of the process. An owner can also write
its successor's record, which the successor then takes up (`Offers`). A partition that was
sealed, or whose stream is being deleted, never has an owner again.

Rules: PROTOCOL M2, O1, O9, O13, O14 and O17.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from geolog.background import both
from geolog.catalog.process_presence import ask_time
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.rules import parent_of
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Freshness,
    Metadata,
    NoNodeError,
    Put,
)
from geolog.protocol.ids import Epoch
from geolog.protocol.owner_absence import OwnerLook, OwnerSeen
from geolog.protocol.stream_state import OwnerRecord, PartitionName, StreamRecord
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


@attrs.frozen
class OwnerClaim:
    """A request to metadata to take a partition: for one epoch, made once."""

    name: PartitionName
    record: OwnerRecord
    """The owner record if the claim succeeds; its `claim_id` is the claim's own."""


class Claimant(Protocol):
    """A process that claims partitions.

    It hears of each claim before metadata does, so that no outcome of a claim is forgotten.
    """

    @property
    def presence(self) -> str:
        """The path of the node that shows that the process is alive."""
        ...

    async def be_present(self) -> None:
        """Make that node, unless it exists in the current session."""
        ...

    def on_absent(self) -> None:
        """That node may have disappeared."""
        ...

    def new_claim_id(self) -> str:
        """An id that no other claim of any process has."""
        ...

    def adopt(self, claim: OwnerClaim, owner: "VersionedOwner") -> bool:
        """Take up a claim that another process stored for this one; whether it is one.

        False if it was taken up before. It counts as taken.
        """
        ...

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


FindChecks = Callable[[], Awaitable[list[Check]]]


async def no_checks() -> list[Check]:
    """Nothing else must hold."""
    return []


class PartitionOwners:
    """The owners of one cluster's partitions."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

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
        """Whether the owner's process is alive, by an answer at least as new as the record.

        A process's reads never go back, so this needs no sync, which would cost a round trip.
        """
        if not owner.presence:
            return False
        return await self._metadata.find(owner.presence) is not None

    async def look_for_owner(
        self, name: PartitionName, *, freshness: Freshness = Freshness.LATEST
    ) -> OwnerLook:
        """The current owner's epoch, and whether the owner is there. NoSuchStreamError."""
        owner = (await self.read(name, freshness=freshness)).record
        if not owner.presence:
            return OwnerLook(owner.epoch, OwnerSeen.LEFT)
        # The reads below are at least as new as the owner record.
        if await self._metadata.find(owner.presence) is not None:
            return OwnerLook(owner.epoch, OwnerSeen.ALIVE)
        folder = await self._metadata.find(parent_of(owner.presence))
        changes_count = 0 if folder is None else folder.children_changes
        return OwnerLook(owner.epoch, OwnerSeen.MISSING, changes_count)

    async def take_ownership(
        self,
        name: PartitionName,
        who: str,
        claimant: Claimant,
        *,
        find_checks: FindChecks = no_checks,
        lease_s: float | None = 0.0,
    ) -> VersionedOwner:
        """Become the owner: take the next epoch by compare-and-set, unless it was given.

        find_checks: finds what else must hold in the step of the claim; raises why it must not
        be taken. lease_s: as the owner's record is to tell it. SealedError, NoSuchStreamError.
        `claimant` is told of every claim, however this ends.
        """
        owner = self._paths.owner(name)
        while True:
            (read, checks), _ = await both(
                partial(both, partial(self.read_latest, name), find_checks),
                claimant.be_present,
            )
            if read.record.is_sealed or read.record.is_deleted:
                raise no_owner(name, read.record)
            # A record that was given tells the lease of its giver.
            is_alike = read.record.lease_s == lease_s
            if is_alike and claimant.adopt(OwnerClaim(name, read.record), read):
                return read
            taken = read.record.claimed(
                owner=who,
                presence=claimant.presence,
                claim_id=claimant.new_claim_id(),
                lease_s=lease_s,
            )
            claim = OwnerClaim(name, taken)
            claimant.on_claimed(claim)
            try:
                *_, version = await self._metadata.multi(
                    [
                        Check(claimant.presence),
                        *checks,
                        Put(owner, seal_document(taken), read.version),
                    ]
                )
            except BadVersionError:
                claimant.on_refused(claim)  # Another process took that epoch: try the next.
                continue
            except NoNodeError:
                # The process's node went with its session. Or the stream is gone: the next
                # read says so.
                claimant.on_refused(claim)
                claimant.on_absent()
                continue
            except OutcomeUnknownError:
                # The epoch may be this claim's. Taking one more epoch costs nothing.
                claimant.on_in_doubt(claim)
                continue
            except BaseException:
                claimant.on_in_doubt(claim)
                raise
            assert isinstance(version, int)
            taken_owner = VersionedOwner(taken, version)
            claimant.on_taken(claim, taken_owner)
            return taken_owner

    async def release_claim(self, claim: OwnerClaim) -> None:
        """Leave if the claim succeeded. NoSuchStreamError.

        The answer comes after the claim's outcome: metadata answers in the order of requests,
        and never carries out a session's requests once the next session has begun.
        """
        found = await self.read(claim.name, freshness=Freshness.CERTAIN)
        if found.record.claim_id == claim.record.claim_id:
            await self.release_ownership(claim.name, found)

    async def release_ownership(self, name: PartitionName, owner: VersionedOwner) -> None:
        """Leave, and record it, so that nobody waits for the process to come back.

        Touches nothing of other owners. NoSuchStreamError.
        """
        found = owner
        while found.record.claim_id == owner.record.claim_id and found.record.presence:
            left = attrs.evolve(found.record, presence="")
            try:
                await self._metadata.put(
                    self._paths.owner(name), seal_document(left), found.version
                )
            except BadVersionError:
                found = await self.read_latest(name)
            except NoNodeError:
                return  # The stream is gone.
            else:
                return

    async def ask_time(self, owner: OwnerRecord) -> bool:
        """Ask for the metadata store's time, as an owner; whether it was told."""
        return await ask_time(self._metadata, owner.presence)

    async def possibly_lost(self, names: Sequence[PartitionName]) -> list[PartitionName]:
        """Those whose stream is gone, sealed or being deleted; one read for each stream.

        A mirror outlives the sealing of its stream, but not the end of relaying to its region.
        """
        streams = sorted({name.stream for name in names})
        paths = [self._paths.stream(stream) for stream in streams]
        usable: set[PartitionName] = set()
        for path, stored in zip(paths, await find_all(self._metadata, paths), strict=True):
            if stored is not None:
                record = open_document(stored.data, StreamRecord, path=path)
                if not record.is_incomplete:
                    logs = record.log_names()
                    usable.update(
                        one for one in logs if record.is_mirror(one) or not record.is_sealed
                    )
        return [name for name in names if name not in usable]

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

    async def seal(
        self, name: PartitionName, *, checks: Sequence[Check] = ()
    ) -> VersionedOwner:
        """Take the partition from any owner; it never has an owner again.

        Idempotent. NoSuchStreamError. checks: of the same step; BadVersionError if one fails,
        or if the partition changes hands meanwhile.
        """
        found = await self.read_latest(name)
        if found.record.is_sealed:
            return found
        return await self._dismiss(name, "sealed", is_sealed=True, checks=checks)

    async def _dismiss(
        self,
        name: PartitionName,
        why: str,
        *,
        is_sealed: bool = False,
        is_deleted: bool = False,
        checks: Sequence[Check] = (),
    ) -> VersionedOwner:
        path = self._paths.owner(name)
        while True:
            read = await self.read_latest(name)
            if read.record.is_deleted and not is_deleted:
                raise no_owner(name, read.record)
            dismissed = attrs.evolve(
                read.record,
                epoch=Epoch(read.record.epoch + 1),
                owner=why,
                presence="",
                claim_id="",
                is_sealed=is_sealed or read.record.is_sealed,
                is_deleted=is_deleted,
            )
            try:
                await self._metadata.multi(
                    [*checks, Put(path, seal_document(dismissed), read.version)]
                )
            except (BadVersionError, NoNodeError):
                if checks:
                    raise
                continue  # It changed hands meanwhile, or is gone.
            return VersionedOwner(dismissed, read.version + 1)


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
