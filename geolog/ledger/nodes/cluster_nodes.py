"""The cluster's nodes as placement sees them: one snapshot, maintained while the process lives.

Metadata is the truth: the live nodes are read again whenever nodes are chosen. Between two
looks the client watches the list of live nodes for departures, so that flapping nodes are
noticed, and the switches, so that writers follow them without a restart. Watching begins with
the first look: a process that places nothing watches nothing.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping

import attrs
import trio

from geolog.background import both
from geolog.ledger.nodes.node_locations import NodeLocations
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.seam import Metadata, NoNodeError
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Member
from topology.errors import GeologError
from topology.location import Location
from topology.membership import Membership, MembershipConfig, NodeUse
from topology.own_policy import NONE_KNOWN, OwnPolicies
from topology.stream_policy import DEFAULT_LOCATION, PlacementPlace
from topology.switches import PlacementSwitches
from topology.tree import Weighting

_log = logging.getLogger(__name__)

LOOK_KEPT_S = 60.0
"""How long readers trust what a look said of a node that is up."""

_RETRY_S = 1.0
"""Pause before watching again after metadata did not answer."""


@attrs.frozen
class ClusterSnapshot:
    """The nodes at one moment."""

    members: Membership
    """Nodes by instance id."""
    records: Mapping[InstanceId, NodeRecord]
    """Records of nodes that are up, and last records of nodes that left recently."""
    place: PlacementPlace
    """Location of the client, and the forbidden regions."""
    now_s: float

    def member(self, node: str) -> Member:
        """A node as a member of an ensemble, with its current location."""
        record = self.records[InstanceId(node)]
        location = self.members.location_of(node)
        return Member(record.instance, record.node_id, location)

    def excluded(self, instances: Iterable[InstanceId] = ()) -> frozenset[str]:
        """These instances, and the nodes on which nothing new is placed."""
        return self.place.excluded(self.members) | frozenset(instances)


class ClusterNodes:
    """Follows the nodes of one cluster; one for each node pool."""

    def __init__(
        self,
        metadata: Metadata,
        cluster: str,
        config: PlacementConfig,
        *,
        live_nodes: Callable[[], Awaitable[list[NodeRecord]]],
        nursery: trio.Nursery,
        own_policies: OwnPolicies = NONE_KNOWN,
    ) -> None:
        self.own_policies = own_policies
        """The placement policies of other packages that this process knows."""
        self._metadata = metadata
        self._cluster = cluster
        self._config = config
        self._locations = NodeLocations(config)
        self._live_nodes = live_nodes
        self._nursery = nursery
        self._members = Membership.of(
            MembershipConfig(
                default_location=DEFAULT_LOCATION,
                stabilize_s=config.stabilize_s,
                departures_max=config.departures_max,
                flapping_s=config.flapping_s,
            ),
            [],
        )
        self._records: Mapping[InstanceId, NodeRecord] = {}
        # The input of the snapshot; None if nodes have left since.
        self._settled: tuple[list[NodeRecord], Mapping[InstanceId, Location]] | None = None
        self._is_watching = False
        self._looked_s = -math.inf
        self.switches = PlacementSwitches()
        """The switches as last seen."""

    async def look(self, region: str | None) -> ClusterSnapshot:
        """Take a snapshot of all nodes for a client in this region."""
        live, _ = await both(self._live_nodes, self._begin_watching)
        self._observe(live, await self._locations.locate(live))
        return ClusterSnapshot(
            self._members, self._records, self.place(region), trio.current_time()
        )

    async def _begin_watching(self) -> None:
        """Read the switches and start watching; does nothing if already started."""
        if self._is_watching:
            return
        self.switches = await read_switches(self._metadata, self._cluster)
        if not self._is_watching:  # Several looks may run at once.
            self._is_watching = True
            self._nursery.start_soon(self._run_watching_switches)
            self._nursery.start_soon(self._run_watching_departures)

    async def resolved(self, records: list[NodeRecord]) -> list[NodeRecord]:
        """These records, with locations overridden by the client's table or script."""
        found = await self._locations.locate(records)
        return [attrs.evolve(one, location=found[one.instance]) for one in records]

    def use_of(self, instance: InstanceId) -> NodeUse:
        """A node's use at the last look, if that was lately; else WRITABLE."""
        if trio.current_time() - self._looked_s > LOOK_KEPT_S:
            return NodeUse.WRITABLE
        known = self._members.members.get(instance)
        return NodeUse.WRITABLE if known is None else known.state

    def place(self, region: str | None) -> PlacementPlace:
        """Location of a client in this region, and the current restrictions."""
        config = self._config
        return PlacementPlace(
            local=config.standing(region),
            weighting=Weighting(config.weight_multiple_max)
            if config.weight_by_free_space
            else None,
            forbidden_regions=self.switches.forbidden_regions,
            own=self.own_policies,
        )

    def _observe(
        self, live: list[NodeRecord], locations: Mapping[InstanceId, Location]
    ) -> None:
        now_s = self._looked_s = trio.current_time()
        if self._settled == (live, locations):
            return  # Keep the snapshot, and everything derived from it.
        members, _ = self._members.changed(
            writable={one.instance for one in live if one.is_writable},
            readonly={one.instance for one in live if not one.is_writable},
            locations=dict[str, Location](locations.items()),
            now_s=now_s,
        )
        kept_s = max(self._config.flapping_s, self._config.stabilize_s)
        self._members = members.without_departed(now_s - kept_s).with_free_bytes(
            {one.instance: one.free_bytes for one in live}
        )
        known = {**self._records, **{one.instance: one for one in live}}
        self._records = {
            instance: record
            for instance, record in known.items()
            if instance in self._members.members
        }
        self._settled = (live, locations)

    # Watching between two looks.

    async def _run_watching_switches(self) -> None:
        while True:
            changed = trio.Event()
            try:
                self.switches = await read_switches(
                    self._metadata, self._cluster, changed=changed
                )
            except GeologError as error:
                await self._rest(error)
            else:
                await changed.wait()

    async def _run_watching_departures(self) -> None:
        path = ClusterPaths(self._cluster).nodes_live
        while True:
            changed = trio.Event()
            try:
                self._note_departures(await self._metadata.children(path, changed=changed))
            except (NoNodeError, GeologError) as error:
                await self._rest(error)
            else:
                await changed.wait()

    def _note_departures(self, instances: list[str]) -> None:
        """Note nodes missing from the list as departed; new nodes are read when needed."""
        listed = frozenset(instances)
        if all(one.node in listed for one in self._members.members.values() if one.is_up):
            return
        self._settled = None
        up = {
            state: {
                node
                for node, member in self._members.members.items()
                if member.state is state and node in listed
            }
            for state in (NodeUse.WRITABLE, NodeUse.READONLY)
        }
        self._members, _ = self._members.changed(
            writable=up[NodeUse.WRITABLE],
            readonly=up[NodeUse.READONLY],
            locations={},
            now_s=trio.current_time(),
        )

    async def _rest(self, error: GeologError) -> None:
        if not error.retriable and not isinstance(error, NoNodeError):
            _log.warning("placement: cannot read switches or live nodes (%s); retrying", error)
        await trio.sleep(_RETRY_S)
