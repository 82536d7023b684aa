"""The nodes that a choice of an ensemble surely could have used, unless forbidden.

Only what all clients know is sure: they learn late of changes, and avoid failed nodes for a
while. So a node counts when it has been up and writable for a while, in a world in which
nothing has happened so far except that processes ended: none was slow or out of reach.
"""

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.placement_switches import SwitchesRecord
from geolog.protocol.ids import InstanceId
from sim.laws.state.seen import Look
from sim.world.endings import ENDINGS
from sim.world.seams import CLUSTER
from topology.location import Location

_STEADY_S = 5.0
"""How long something must have been so that every client must know it."""
_AVOIDED_S = 40.0
"""How long ago a node must have started, unless it was there from the beginning: a little
longer than clients avoid a failed node."""
_PATHS = ClusterPaths(CLUSTER)


@attrs.frozen
class Steady:
    """The state that all clients knew at one moment, and had known for a while."""

    nodes: dict[InstanceId, Location]
    """Nodes that could be used, none of them in a forbidden region."""
    forbidden: frozenset[str]
    """Regions in which nothing new was placed."""


@attrs.define
class SteadyNodes:
    """Keeps since when nodes and regions have been as they are."""

    _writable_since_s: dict[InstanceId, float] = attrs.field(factory=dict)
    _started_s: dict[str, float] = attrs.field(factory=dict)
    """By process, except those from the beginning."""
    _switched_s: dict[str, float] = attrs.field(factory=dict)
    """By region: when it was last forbidden or allowed."""
    _forbidden: frozenset[str] = frozenset()

    def look(self, now: Look) -> Steady | None:
        """The steady state now; None if nothing is sure."""
        world, now_s = now.world, trio.current_time()
        for process in world.processes.values():
            if process.incarnation > 1:
                self._started_s.setdefault(process.key, now_s)
        writable = _writable_nodes(now)
        self._writable_since_s = {
            instance: self._writable_since_s.get(instance, now_s) for instance in writable
        }
        self._note_switches(now, now_s)
        is_sure = (
            ENDINGS.issuperset(world.struck)
            and not world.options.links.stall_chance
            and not world.options.knobs.is_room_tight
        )
        if not is_sure:
            return None
        unsure = {
            region for region, at_s in self._switched_s.items() if now_s - at_s < _STEADY_S
        }
        return Steady(
            {
                instance: record.location
                for instance, record in writable.items()
                if now_s - self._writable_since_s[instance] > _STEADY_S
                and self._is_old(now, record.node_id, now_s)
                and record.location.region not in self._forbidden | unsure
            },
            self._forbidden - unsure,
        )

    def _note_switches(self, now: Look, now_s: float) -> None:
        path = _PATHS.placement_switches
        node = now.world.store.tree.nodes.get(path)
        found = frozenset[str]()
        if node is not None:
            record = open_document(node.data, SwitchesRecord, path=path)
            found = frozenset(record.forbidden_regions)
        self._switched_s.update(dict.fromkeys(found ^ self._forbidden, now_s))
        self._forbidden = found

    def _is_old(self, now: Look, node_id: str, now_s: float) -> bool:
        process = now.world.processes.get(node_id)
        if process is None:
            return False
        return now_s - self._started_s.get(process.key, -_AVOIDED_S) > _AVOIDED_S


def _writable_nodes(now: Look) -> dict[InstanceId, NodeRecord]:
    nodes = now.world.store.tree.nodes
    if _PATHS.nodes_live not in nodes:
        return {}
    paths = [
        f"{_PATHS.nodes_live}/{name}" for name in sorted(nodes[_PATHS.nodes_live].children)
    ]
    records = [open_document(nodes[path].data, NodeRecord, path=path) for path in paths]
    return {record.instance: record for record in records if record.is_writable}
