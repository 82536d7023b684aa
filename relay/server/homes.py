"""The bridges that a coordinator dials: one to each other region that has a relay group.

Its own region may be a target of streams of any other one. A bridge to a coordinator that was
succeeded is given up, and its successor dialled.

Rules: PROTOCOL G4.
"""

import trio

from geolog.metadata.relays import RelayGroups, RelayViewRecord
from relay.bridge.bridge_ends import BridgeEnds
from topology.errors import GeologError

_LOOK_AGAIN_S = 0.5


async def dial_homes(ends: BridgeEnds, groups: RelayGroups) -> None:
    """Keep a bridge to each other region that has a relay group; never returns."""
    dialled: set[str] = {ends.region}
    async with trio.open_nursery() as nursery:
        while True:
            changed = trio.Event()
            try:
                regions = await groups.regions(changed=changed)
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(_LOOK_AGAIN_S)
                continue
            for region in regions:
                if region not in dialled:
                    dialled.add(region)
                    nursery.start_soon(_dial, ends, groups, region)
            await changed.wait()


async def _dial(ends: BridgeEnds, groups: RelayGroups, region: str) -> None:
    """Keep a bridge to the coordinator of that region, whichever it is; never returns."""
    view = await _next_view(groups, region, None)
    async with ends.open_mirrors() as mirrors:
        while True:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ends.mirror, region, view.address, mirrors)
                view = await _next_view(groups, region, view)
                nursery.cancel_scope.cancel(reason=f"{region} has another coordinator")


async def _next_view(
    groups: RelayGroups, region: str, known: RelayViewRecord | None
) -> RelayViewRecord:
    """Wait until a region has another coordinator than the known one."""
    while True:
        changed = trio.Event()
        try:
            found = await groups.view(region, changed=changed)
        except GeologError as error:
            if not error.retriable:
                raise
            await trio.sleep(_LOOK_AGAIN_S)
            continue
        if found is not None and found[0] != known:
            return found[0]
        await changed.wait()
