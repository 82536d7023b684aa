"""Where a command stands: a region that the cluster does not have is most likely mistyped."""

from functools import partial

from geolog.background import all_of
from geolog.cli.invocation import Invocation, tell
from geolog.client.log import Log
from geolog.metadata.nodes import list_known_nodes, list_live_nodes
from topology.errors import NotFoundError


class NoSuchRegionError(NotFoundError):
    """No server of the cluster ever stood in this region: name one that there is."""


async def check_standing(log: Log, invocation: Invocation) -> None:
    """NoSuchRegionError for a region that is not the cluster's; warn of one that is down.

    A cluster of which no region is known says nothing about any.
    """
    here = invocation.config.region
    if here is None:
        return
    access = log.access
    found = await all_of(
        [
            partial(list_known_nodes, access.metadata, access.cluster),
            partial(list_live_nodes, access.metadata, access.cluster),
        ]
    )
    known, live = [
        {one.location.region for one in await access.pool.nodes.resolved(nodes)}
        for nodes in found
    ]
    names = sorted(known | live | _metadata_regions(invocation))
    if here not in names and names:
        raise NoSuchRegionError(
            f"cluster {access.cluster!r} has no region {here!r} (--region): it has"
            f" {', '.join(names)}"
        )
    if names and here not in live:
        tell(f"warning: no storage node of {here} is up; those of other regions are used")


def _metadata_regions(invocation: Invocation) -> set[str]:
    """Regions that have a ZooKeeper server, as far as the settings name them."""
    text = invocation.config.zookeeper_regions
    return {name.strip() for name in text.split(",") if name.strip()}
