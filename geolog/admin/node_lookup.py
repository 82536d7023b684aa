"""Nodes by their ids, as a person names them."""

import difflib
from collections.abc import Iterable

from geolog.metadata.nodes import NodeRecord
from geolog.metadata.replaced_nodes import UnknownNodeError


def node_named(node_id: str, known: Iterable[NodeRecord]) -> NodeRecord:
    """The node of that id; UnknownNodeError, which names the nearest, if there is none."""
    by_id = {record.node_id: record for record in known}
    if node_id not in by_id:
        raise unknown_node(node_id, by_id)
    return by_id[node_id]


def unknown_node(node_id: str, known_ids: Iterable[str]) -> UnknownNodeError:
    """The error for an id that no node has; it names the nearest that one has."""
    nearest = difflib.get_close_matches(node_id, sorted(known_ids), n=1, cutoff=0.0)
    hint = f"the nearest known id is {nearest[0]!r}" if nearest else "no node ever joined it"
    return UnknownNodeError(f"no node of this cluster has the id {node_id!r}: {hint}")
