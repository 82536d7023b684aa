"""The storage nodes of a cluster in metadata: those that ever joined, and those that are up.

A node that joins is recorded for good under its node id, with the instance id of its disk: the
next process with that id must bring that disk. While the node is up it also has an ephemeral
record, under its instance id.
"""

import enum

import attrs

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata, NodeExistsError, NoNodeError
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from topology.location import Location


class NodeState(enum.Enum):
    """Kinds of requests that a node accepts."""

    WRITABLE = "writable"
    READ_ONLY = "readonly"
    """It reads and fences, but stores nothing new."""


@attrs.frozen
class ClusterRecord:
    """A cluster's identity, created by the first node to come."""

    cluster_id: str
    """32 hex digits."""
    format: int = 1
    metadata_tick_s: float | None = None
    """ZooKeeper's tick, as its servers told it last; None if they have not."""


@attrs.frozen
class NodeRecord:
    """One storage node. `state` and `free_bytes` are valid in its live record only."""

    node_id: str
    instance: InstanceId
    address: Address
    location: Location
    state: NodeState = NodeState.WRITABLE
    free_bytes: int = 0
    """Space left for entries, in coarse steps; 0 if never reported."""

    @property
    def is_writable(self) -> bool:
        """Whether it stores new entries."""
        return self.state is NodeState.WRITABLE


async def find_or_create_cluster(
    metadata: Metadata, cluster: str, *, new_cluster_id: str
) -> ClusterRecord:
    """The cluster's identity; the first to come gives it `new_cluster_id`."""
    paths = ClusterPaths(cluster)
    await metadata.ensure_path(paths.root)
    found = await metadata.find(paths.cluster)
    if found is None:
        new = ClusterRecord(new_cluster_id)
        try:
            await metadata.create(paths.cluster, seal_document(new))
        except NodeExistsError:
            found = await metadata.get(paths.cluster)  # Somebody else came first.
        else:
            return new
    return open_document(found.data, ClusterRecord, path=paths.cluster)


async def find_known_node(metadata: Metadata, cluster: str, node_id: str) -> NodeRecord | None:
    """The durable record of one node; None if it never joined."""
    return await _find_node(metadata, ClusterPaths(cluster).node_known(node_id))


async def list_known_nodes(metadata: Metadata, cluster: str) -> list[NodeRecord]:
    """All nodes that ever joined, ordered by node id."""
    return await _list_nodes(metadata, ClusterPaths(cluster).nodes_known)


async def list_live_nodes(metadata: Metadata, cluster: str) -> list[NodeRecord]:
    """The nodes that are up, ordered by node id."""
    return await _list_nodes(metadata, ClusterPaths(cluster).nodes_live)


async def find_live_node(
    metadata: Metadata, cluster: str, instance: InstanceId
) -> NodeRecord | None:
    """The live record of one instance; None if it is not up."""
    return await _find_node(metadata, ClusterPaths(cluster).node_live(instance))


async def _list_nodes(metadata: Metadata, parent: str) -> list[NodeRecord]:
    try:
        paths = [f"{parent}/{name}" for name in await metadata.children(parent)]
    except NoNodeError:
        return []
    records = [
        open_document(one.data, NodeRecord, path=path)
        for path, one in zip(paths, await find_all(metadata, paths), strict=True)
        if one is not None
    ]
    return sorted(records, key=lambda record: record.node_id)


async def _find_node(metadata: Metadata, path: str) -> NodeRecord | None:
    found = await metadata.find(path)
    return open_document(found.data, NodeRecord, path=path) if found else None
