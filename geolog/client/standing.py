"""Checks the region that a caller names: an unknown one is most likely a typo."""

from collections.abc import Iterable
from functools import partial

import attrs

from geolog.background import all_of
from geolog.client.log import Log
from geolog.metadata.nodes import list_known_nodes, list_live_nodes
from geolog.transport.gateway import Gateway, UnknownHereError, check_region_known
from geolog.transport.seam import ConnectionFailedError
from topology.errors import NotFoundError, public
from topology.nearest import nearest


@public
class NoSuchRegionError(NotFoundError):
    """The cluster never had a server in this region: name one of its regions."""


@attrs.frozen
class RegionStanding:
    """A region that the cluster has, or any, while it has none yet."""

    is_up: bool
    """Whether a storage node is up there; True while the cluster has none."""


async def check_region(log: Log, region: str, *, others: Iterable[str] = ()) -> RegionStanding:
    """NoSuchRegionError unless the cluster has, or had, a node there, or `others` name it."""
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
    names = sorted(known | live | set(others))
    if region not in names and names:
        best = nearest(region, names)
        hint = "" if best is None else f"; did you mean {best!r}?"
        raise NoSuchRegionError(
            f"cluster {access.cluster!r} has no region {region!r}, only"
            f" {', '.join(names)}{hint}"
        )
    return RegionStanding(is_up=not names or region in live)


async def check_region_named(gateway: Gateway) -> None:
    """NoSuchRegionError if the gateway does not know the caller's region.

    Without it, every connection would be refused, and the caller would wait in vain.
    """
    try:
        await check_region_known(gateway)
    except UnknownHereError as error:
        raise NoSuchRegionError(f"gateway {gateway.address}: {error}") from error
    except ConnectionFailedError:
        return  # Connecting to the servers meets the same, and says which.
