"""The clusters of one metadata store, by name: a mistyped one is told from an empty one."""

from geolog.metadata.find_all import find_all
from geolog.metadata.paths import CLUSTERS_PARENT, ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, NoNodeError
from topology.errors import NotFoundError

_NAMED_MAX = 10


class NoSuchClusterError(NotFoundError):
    """No storage node ever joined a cluster of this name: name one that there is."""


async def list_clusters(metadata: Metadata) -> list[str]:
    """Names of the clusters that a storage node ever joined, sorted."""
    try:
        names = await metadata.children(CLUSTERS_PARENT)
    except NoNodeError:
        return []
    # A client may have left something under a name that was never a cluster's.
    found = await find_all(metadata, [f"{CLUSTERS_PARENT}/{name}/cluster" for name in names])
    return [name for name, record in zip(names, found, strict=True) if record is not None]


async def check_cluster(metadata: Metadata, cluster: str, *, where: str) -> None:
    """NoSuchClusterError, with the clusters there are, if it is not at this ZooKeeper."""
    path = ClusterPaths(cluster).cluster
    if await metadata.find(path) is not None:
        return
    # It may be new, and this server may lag.
    if await metadata.find(path, freshness=Freshness.LATEST) is not None:
        return
    names = await list_clusters(metadata)
    if not names:
        raise NoSuchClusterError(
            f"there is no cluster {cluster!r} at ZooKeeper {where}, nor any other: it begins"
            " with its first storage node (geolog serve storage, or geolog demo)"
        )
    more = len(names) - _NAMED_MAX
    listed = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    raise NoSuchClusterError(
        f"there is no cluster {cluster!r} at ZooKeeper {where} (--cluster): there"
        f" {'are' if len(names) > 1 else 'is only'} {listed}"
    )
