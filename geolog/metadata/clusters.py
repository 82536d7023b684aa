"""List the clusters of a metadata store by name, to tell a mistyped name from a new cluster."""

from geolog.metadata.find_all import find_all
from geolog.metadata.paths import CLUSTERS_PARENT, ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, NoNodeError
from topology.errors import NotFoundError, public

_NAMED_MAX = 10


@public
class NoSuchClusterError(NotFoundError):
    """No storage node ever joined a cluster of this name: use a name that exists."""


async def list_clusters(metadata: Metadata) -> list[str]:
    """Names of the clusters that a storage node has ever joined, sorted."""
    try:
        names = await metadata.children(CLUSTERS_PARENT)
    except NoNodeError:
        return []
    # A client may have left something under a name that never was a cluster.
    found = await find_all(metadata, [f"{CLUSTERS_PARENT}/{name}/cluster" for name in names])
    return [name for name, record in zip(names, found, strict=True) if record is not None]


async def check_cluster(metadata: Metadata, cluster: str, *, where: str) -> None:
    """NoSuchClusterError, listing the existing clusters, unless this ZooKeeper has it."""
    path = ClusterPaths(cluster).cluster
    if await metadata.find(path) is not None:
        return
    # The cluster may be new, and this server may lag.
    if await metadata.find(path, freshness=Freshness.LATEST) is not None:
        return
    names = await list_clusters(metadata)
    if not names:
        raise NoSuchClusterError(
            f"ZooKeeper {where} has no cluster {cluster!r}, nor any other: the first storage"
            " node creates it (geolog serve storage, or geolog demo)"
        )
    more = len(names) - _NAMED_MAX
    listed = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    raise NoSuchClusterError(
        f"ZooKeeper {where} has no cluster {cluster!r} (--cluster); it has"
        f" {'' if len(names) > 1 else 'only '}{listed}"
    )
