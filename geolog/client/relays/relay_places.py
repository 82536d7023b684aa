"""The addresses of a region's relays, the coordinator's first, as metadata has them.

An owner looks once a second; metadata is read only while there are none, and after a member
came or went, or another coordinates.

Rules: PROTOCOL T4.
"""

import attrs
import trio

from geolog.metadata.relays import RelayGroups
from geolog.transport.seam import Address


@attrs.frozen
class _Seen:
    addresses: tuple[Address, ...]
    changed: trio.Event


class RelayPlaces:
    """Finds the relays of regions; `find` is a `FindRelays`."""

    def __init__(self, groups: RelayGroups) -> None:
        self._groups = groups
        self._seen: dict[str, _Seen] = {}

    def __repr__(self) -> str:
        return f"RelayPlaces({sorted(self._seen)})"

    async def find(self, region: str) -> tuple[Address, ...]:
        """The coordinator, then the other members in the order of joining."""
        seen = self._seen.get(region)
        if seen is None or seen.changed.is_set():
            changed = trio.Event()
            group = await self._groups.look(region, changed=changed)
            members = [one.record.address for one in group.members]
            view = group.view
            if view is not None and any(one.number == view.number for one in group.members):
                members = [view.address, *(one for one in members if one != view.address)]
            seen = _Seen(tuple(members), changed)
            if members:  # Nothing tells of the first member of a group.
                self._seen[region] = seen
        return seen.addresses
