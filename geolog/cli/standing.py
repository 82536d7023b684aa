"""Checks `--region`: one that the cluster does not have is most likely a typo."""

from functools import partial

from geolog.background import all_of
from geolog.cli.invocation import Invocation, tell
from geolog.client.log import Log
from geolog.metadata.nodes import list_known_nodes, list_live_nodes
from topology.errors import NotFoundError
from topology.nearest import nearest


class NoSuchRegionError(NotFoundError):
    """The cluster never had a server in this region: name one of its regions."""


async def check_standing(log: Log, invocation: Invocation) -> None:
    """Raise NoSuchRegionError for an unknown region; warn about one that is down.

    Accepts any region while the cluster has none yet.
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
            f"cluster {access.cluster!r} has no region {here!r} (--region); did you mean"
            f" {nearest(here, names)!r}? Its regions are {', '.join(names)}"
        )
    if names and here not in live:
        tell(f"warning: no storage node in {here} is up; using nodes in other regions")


def _metadata_regions(invocation: Invocation) -> set[str]:
    """Regions of the ZooKeeper servers, if the settings name them."""
    text = invocation.config.zookeeper_regions
    return {name.strip() for name in text.split(",") if name.strip()}
