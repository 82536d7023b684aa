"""Finding nodes by id."""

from collections.abc import Iterable

from geolog.metadata.nodes import NodeRecord
from geolog.metadata.replaced_nodes import UnknownNodeError
from topology.nearest import suggestion


def node_named(node_id: str, known: Iterable[NodeRecord]) -> NodeRecord:
    """The node with this id. UnknownNodeError names the nearest."""
    by_id = {record.node_id: record for record in known}
    if node_id not in by_id:
        raise unknown_node(node_id, by_id)
    return by_id[node_id]


def unknown_node(node_id: str, known_ids: Iterable[str]) -> UnknownNodeError:
    """The error for an unknown node id; it names the nearest one that exists."""
    known = sorted(known_ids)
    hint = suggestion(node_id, known) if known else "; no node has joined it yet"
    return UnknownNodeError(f"no node of this cluster has id {node_id!r}{hint}")
