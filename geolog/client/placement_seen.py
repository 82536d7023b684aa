"""The nodes of a cluster, as judging and planning of placement take them."""

from collections.abc import Mapping

import attrs

from geolog.client.cluster_access import ClusterAccess
from geolog.metadata.nodes import NodeRecord, NodeState, list_known_nodes
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.replaced_nodes import ReplacedNode, list_replaced_nodes
from geolog.protocol.fragment_placement import NodesSeen
from geolog.protocol.ids import InstanceId
from topology.membership import Member, Membership, MembershipConfig
from topology.membership import NodeState as Placeable
from topology.stream_policy import DEFAULT_LOCATION

_CONFIG = MembershipConfig(default_location=DEFAULT_LOCATION)


@attrs.frozen
class ClusterSeen:
    """The nodes of a cluster at one moment."""

    nodes: NodesSeen
    live: Mapping[InstanceId, NodeRecord]
    """Those that are up."""
    node_ids: Mapping[str, str]
    """By instance, also of those that were given up."""


async def see_nodes(access: ClusterAccess) -> ClusterSeen:
    """All nodes that are or were known, and what operators forbid."""
    known = await list_known_nodes(access.metadata, access.cluster)
    replaced = await list_replaced_nodes(access.metadata, access.cluster)
    switches = await read_switches(access.metadata, access.cluster)
    live = {node.instance: node for node in await access.pool.live_nodes()}
    departed: list[NodeRecord | ReplacedNode] = [*replaced, *known]
    members: dict[str, Member] = {one.instance: _departed(one) for one in departed}
    members.update({node.instance: _member(node) for node in live.values()})
    seen = NodesSeen(
        Membership(_CONFIG, members),
        frozenset(one.instance for one in replaced),
        switches.forbidden_regions,
    )
    node_ids: dict[str, str] = {
        one.instance: one.node_id for one in [*departed, *live.values()]
    }
    return ClusterSeen(seen, live, node_ids)


def _departed(node: NodeRecord | ReplacedNode) -> Member:
    return Member(node=node.instance, location=node.location, state=Placeable.DOWN)


def _member(node: NodeRecord) -> Member:
    state = Placeable.WRITABLE if node.state is NodeState.WRITABLE else Placeable.READONLY
    return Member(node=node.instance, location=node.location, state=state)
