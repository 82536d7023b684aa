"""Instances that never come back: their disks are lost or given up, and others replace them.

An instance's record is created in the step that takes its node id away, and stays for good: if
the disk turns up again, the record makes the node refuse it. A starting node announces itself
in a step that changes its known record (`regions.storage.registration`). So if a node starts
while an operator replaces it, only one of the two succeeds.

Rules: PROTOCOL D7.
"""

import attrs

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.nodes import NodeRecord, find_live_node
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
)
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from topology.errors import ConflictError, NotFoundError, OutcomeUnknownError
from topology.location import Location


class NodeRunsError(ConflictError):
    """A running node cannot be replaced: stop it first."""


class UnknownNodeError(NotFoundError):
    """No node of this cluster has this id (`geolog node ls` lists them)."""


@attrs.frozen(kw_only=True)
class ReplacedNode:
    """An instance that never comes back, and its last known facts."""

    instance: InstanceId
    node_id: str
    address: Address
    location: Location
    is_moved: bool = False
    """Whether it is known that no ledger has it as a member any more."""


async def find_replaced_node(
    metadata: Metadata, cluster: str, instance: InstanceId
) -> ReplacedNode | None:
    """The record of a replaced instance; None if it was not replaced."""
    path = ClusterPaths(cluster).node_replaced(instance)
    found = await metadata.find(path)
    return open_document(found.data, ReplacedNode, path=path) if found else None


async def list_replaced_nodes(metadata: Metadata, cluster: str) -> list[ReplacedNode]:
    """All replaced instances, ordered by node id, then instance."""
    paths = ClusterPaths(cluster)
    try:
        names = await metadata.children(paths.nodes_replaced)
    except NoNodeError:
        return []
    places = [paths.node_replaced(InstanceId(name)) for name in names]
    records = [
        open_document(one.data, ReplacedNode, path=path)
        for path, one in zip(places, await find_all(metadata, places), strict=True)
        if one is not None
    ]
    return sorted(records, key=lambda record: (record.node_id, record.instance))


async def mark_replaced(metadata: Metadata, cluster: str, node_id: str) -> ReplacedNode:
    """Take the node id away from its instance for good; NodeRunsError if the instance is up.

    UnknownNodeError when the id belongs to no instance.
    """
    paths = ClusterPaths(cluster)
    known_path = paths.node_known(node_id)
    await metadata.ensure_path(paths.nodes_replaced)
    while True:
        found = await metadata.find(known_path, freshness=Freshness.LATEST)
        if found is None:
            raise UnknownNodeError(f"no node of this cluster has the id {node_id!r}")
        known = open_document(found.data, NodeRecord, path=known_path)
        live = await find_live_node(metadata, cluster, known.instance)
        if live is not None:
            raise NodeRunsError(
                f"node {node_id} is up at {live.address}, and a running node cannot be"
                " replaced: stop it first. If it has just died, its record expires within"
                f" {metadata.session_timeout_s:g} s, the session time-out: try again then"
            )
        replaced = ReplacedNode(
            instance=known.instance,
            node_id=node_id,
            address=known.address,
            location=known.location,
        )
        create = Create(paths.node_replaced(known.instance), seal_document(replaced))
        try:
            # The version was read before the check: a node that came up since has changed it.
            await metadata.multi([Delete(known_path, found.version), create])
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue
        except OutcomeUnknownError:
            if await find_replaced_node(metadata, cluster, known.instance) is None:
                continue
        return replaced


async def note_moved(metadata: Metadata, cluster: str, instance: InstanceId) -> None:
    """Note that no ledger has this instance as a member any more."""
    path = ClusterPaths(cluster).node_replaced(instance)
    while (found := await metadata.find(path)) is not None:
        replaced = open_document(found.data, ReplacedNode, path=path)
        if replaced.is_moved:
            return
        moved = attrs.evolve(replaced, is_moved=True)
        try:
            await metadata.put(path, seal_document(moved), found.version)
        except (BadVersionError, NoNodeError):
            continue  # Most likely another process noted it.
        return
