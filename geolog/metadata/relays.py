"""The relay groups of a cluster in metadata: the members of each region, and its coordinator.

    relays/REGION                 nothing
    relays/REGION/view            the coordinator, and its epoch; replaced by compare-and-set
    relays/REGION/members         nothing
    relays/REGION/members/m-N     a member that is up; ephemeral, N rises as they join

Rules: PROTOCOL G1 and G2.
"""

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Put,
    Stored,
)
from geolog.transport.seam import Address

_MEMBER = "m-"


@attrs.frozen(kw_only=True)
class RelayMemberRecord:
    """One member of a relay group that is up."""

    relay_id: str
    region: str
    address: Address
    """Where other members, and coordinators of other regions, reach it."""


@attrs.frozen(kw_only=True)
class RelayViewRecord:
    """The coordinator of a region's relay group."""

    epoch: int
    """The relay epoch; it rises with each coordinator."""
    number: int
    """The coordinator's number among the members."""
    relay_id: str
    address: Address
    is_of_silence: bool = False
    """Whether the coordinator before was still a member, and did not answer."""


@attrs.frozen
class ListedMember:
    """A member, and its number in the order of joining."""

    number: int
    record: RelayMemberRecord


@attrs.frozen
class RelayGroupSeen:
    """A region's relay group, as metadata has it."""

    members: tuple[ListedMember, ...]
    """In the order of joining."""
    view: RelayViewRecord | None
    view_version: int

    @property
    def standby(self) -> ListedMember | None:
        """The member that coordinates next."""
        coordinator = -1 if self.view is None else self.view.number
        return next((one for one in self.members if one.number != coordinator), None)


class RelayGroups:
    """The relay groups of one cluster."""

    def __init__(self, metadata: Metadata, cluster: str) -> None:
        self._metadata = metadata
        self._paths = ClusterPaths(cluster)

    async def regions(self, *, changed: trio.Event | None = None) -> list[str]:
        """The regions that have, or had, a relay group."""
        await self._metadata.ensure_path(self._paths.relays)
        return await self._metadata.children(self._paths.relays, changed=changed)

    async def look(self, region: str, *, changed: trio.Event | None = None) -> RelayGroupSeen:
        """A region's members and coordinator; none if it has no group.

        `changed` is set once, after a member comes or goes or there is another coordinator.
        """
        view = await self.view(region, changed=changed)
        parent = self._paths.relay_members(region)
        try:
            names = await self._metadata.children(parent, changed=changed)
        except NoNodeError:
            names = []
        paths = [f"{parent}/{name}" for name in names]
        members = [
            ListedMember(
                _number_of(path), open_document(one.data, RelayMemberRecord, path=path)
            )
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
            if one is not None
        ]
        members.sort(key=lambda member: member.number)
        found, version = (None, -1) if view is None else view
        return RelayGroupSeen(tuple(members), found, version)

    async def view(
        self, region: str, *, changed: trio.Event | None = None
    ) -> tuple[RelayViewRecord, int] | None:
        """A region's coordinator, and the version of that record."""
        path = self._paths.relay_view(region)
        stored = await self._metadata.find(path, changed=changed, freshness=Freshness.NEARBY)
        if stored is None:
            return None
        return open_document(stored.data, RelayViewRecord, path=path), stored.version

    async def join(self, record: RelayMemberRecord) -> int:
        """Become a member, as long as this session lives; return the number.

        A membership of the same relay that an older session has left ends: its address answers
        again, so the others would take it for a member that is up.
        """
        parent = self._paths.relay_members(record.region)
        await self._metadata.ensure_path(parent)
        new = Create(
            f"{parent}/{_MEMBER}", seal_document(record), is_ephemeral=True, is_sequential=True
        )
        while True:
            left = [
                Delete(self._member(record.region, one.number))
                for one in (await self.look(record.region)).members
                if one.record.relay_id == record.relay_id
            ]
            try:
                *_, path = await self._metadata.multi([*left, new])
            except NoNodeError:
                continue  # An old one has just gone by itself.
            assert isinstance(path, str)
            return _number_of(path)

    async def leave(self, region: str, number: int) -> None:
        """End a membership."""
        try:
            await self._metadata.delete(self._member(region, number))
        except NoNodeError:
            return  # Its session was over.

    async def claim(self, region: str, view: RelayViewRecord, *, seen_version: int) -> bool:
        """Replace the view of that version (-1: none), as a member; whether that was done.

        Each claim raises version and epoch by one, so an epoch that does not follow that
        version's was decided on an older view: it is refused.
        """
        if view.epoch != seen_version + 2:
            return False
        path, data = self._paths.relay_view(region), seal_document(view)
        change = (
            Create(path, data) if seen_version < 0 else Put(path, data, version=seen_version)
        )
        try:
            await self._metadata.multi([Check(self._member(region, view.number)), change])
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False
        return True

    def _member(self, region: str, number: int) -> str:
        return f"{self._paths.relay_members(region)}/{_MEMBER}{number:010d}"


def _member_of(path: str, stored: Stored) -> ListedMember:
    record = open_document(stored.data, RelayMemberRecord, path=path)
    return ListedMember(_number_of(path), record)


def _number_of(path: str) -> int:
    return int(path.rpartition(_MEMBER)[2])
