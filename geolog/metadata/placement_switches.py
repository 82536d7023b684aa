"""The switches that operators flip while the cluster runs, as metadata holds them."""

from collections.abc import Callable

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import BadVersionError, Freshness, Metadata, NodeExistsError
from topology.switches import PlacementSwitches


@attrs.frozen(kw_only=True)
class SwitchesRecord:
    """The present restrictions; absent until the first one."""

    forbidden_regions: tuple[str, ...] = ()
    """Regions in which nothing new is placed, sorted."""


async def read_switches(
    metadata: Metadata,
    cluster: str,
    *,
    changed: trio.Event | None = None,
    freshness: Freshness = Freshness.NEARBY,
) -> PlacementSwitches:
    """The switches as one server has them; `changed` is set once, after they change."""
    return (await _find(metadata, cluster, changed, freshness))[0]


async def change_switches(
    metadata: Metadata,
    cluster: str,
    change: Callable[[PlacementSwitches], PlacementSwitches],
) -> PlacementSwitches:
    """Apply `change` to the switches and store the result by compare-and-set."""
    path = ClusterPaths(cluster).placement_switches
    while True:
        found, version = await _find(metadata, cluster, freshness=Freshness.LATEST)
        switches = change(found)
        record = SwitchesRecord(forbidden_regions=tuple(sorted(switches.forbidden_regions)))
        try:
            if version is None:
                await metadata.create(path, seal_document(record))
            else:
                await metadata.put(path, seal_document(record), version)
        except (BadVersionError, NodeExistsError):
            continue  # Somebody else changed them.
        return switches


async def _find(
    metadata: Metadata,
    cluster: str,
    changed: trio.Event | None = None,
    freshness: Freshness = Freshness.NEARBY,
) -> tuple[PlacementSwitches, int | None]:
    path = ClusterPaths(cluster).placement_switches
    stored = await metadata.find(path, changed=changed, freshness=freshness)
    if stored is None:
        return PlacementSwitches(), None
    record = open_document(stored.data, SwitchesRecord, path=path)
    return PlacementSwitches(frozenset(record.forbidden_regions)), stored.version
