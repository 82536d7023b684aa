"""The nodes of a cluster, as placement judges and plans with them."""

from collections.abc import Mapping

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.nodes.cluster_nodes import ClusterSnapshot
from geolog.metadata.nodes import NodeRecord, list_known_nodes
from geolog.metadata.replaced_nodes import ReplacedNode, list_replaced_nodes
from geolog.protocol.fragment_placement import NodesSeen
from geolog.protocol.ids import InstanceId
from topology.membership import KnownNode, Membership, NodeUse


@attrs.frozen
class PlacementSeen:
    """The nodes of a cluster at one moment, including those that left or were given up."""

    nodes: NodesSeen
    cluster: ClusterSnapshot
    node_ids: Mapping[str, str]
    """Keyed by instance."""
    replaced: tuple[ReplacedNode, ...]

    @property
    def answering(self) -> frozenset[InstanceId]:
        """The instances that are up."""
        members = self.nodes.members.members
        return frozenset(InstanceId(node) for node, one in members.items() if one.is_up)


async def see_nodes(access: ClusterAccess) -> PlacementSeen:
    """Read all nodes that are or were known, and the regions that operators forbid."""
    nodes = access.pool.nodes
    known = await nodes.resolved(await list_known_nodes(access.metadata, access.cluster))
    replaced = await list_replaced_nodes(access.metadata, access.cluster)
    cluster = await nodes.look(access.region)
    departed: list[NodeRecord | ReplacedNode] = [*replaced, *known]
    members: dict[str, KnownNode] = {one.instance: _departed(one) for one in departed}
    members.update(cluster.members.members)
    seen = NodesSeen(
        Membership(cluster.members.config, members),
        frozenset(one.instance for one in replaced),
        cluster.place,
    )
    node_ids: dict[str, str] = {
        one.instance: one.node_id for one in [*departed, *cluster.records.values()]
    }
    return PlacementSeen(seen, cluster, node_ids, tuple(replaced))


def _departed(node: NodeRecord | ReplacedNode) -> KnownNode:
    return KnownNode(node=node.instance, location=node.location, state=NodeUse.DOWN)
