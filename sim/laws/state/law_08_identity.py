"""Law 8: a node answers only on the disk that metadata has for it."""

from collections.abc import Iterator

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import InstanceId
from sim.laws.state.seen import Look
from sim.world.seams import CLUSTER


@attrs.define
class Identity:
    """Keeps the instance of each node on its current disk."""

    _instances: dict[tuple[str, int], InstanceId] = attrs.field(factory=dict)
    _known: dict[str, tuple[bytes, InstanceId]] = attrs.field(factory=dict)
    """By node: its record in metadata, and the instance in it."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current identities with those seen before."""
        yield from self._names_taken(now)
        for host, core in sorted(now.world.cores.items()):
            node = now.world.nodes[host]
            first = self._instances.setdefault((host, node.disks_given_up), core.instance)
            if core.instance != first:
                yield f"node {host} answers as {core.instance}, but is {first}"
            if node.is_wrong_disk:
                yield f"node {host} answers on a disk that is not its own, or is an old copy"
            if node.disks_given_up:
                old = self._instances.get((host, node.disks_given_up - 1))
                if old is not None and not _is_given_up(now, old):
                    yield f"node {host} answers as {core.instance}, but {old} was not given up"
        for (host, number), instance in self._instances.items():
            if any(
                other == instance and (host, number) != key
                for key, other in self._instances.items()
            ):
                yield f"two disks are named {instance}, one of them at node {host}"

    def _names_taken(self, now: Look) -> Iterator[str]:
        nodes = now.world.store.tree.nodes
        for host in now.world.nodes:
            path = ClusterPaths(CLUSTER).node_known(host)
            data = nodes[path].data if path in nodes else None
            before = self._known.get(host)
            if data is None or (before is not None and before[0] is data):
                continue
            instance = open_document(data, NodeRecord, path=path).instance
            self._known[host] = data, instance
            if before is None or before[1] == instance or _is_given_up(now, before[1]):
                continue
            yield f"node {host} now belongs to {instance}, but {before[1]} was not given up"


def _is_given_up(now: Look, instance: InstanceId) -> bool:
    path = ClusterPaths(CLUSTER).node_replaced(instance)
    return path in now.world.store.tree.nodes
