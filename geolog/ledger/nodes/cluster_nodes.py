"""The nodes of the cluster as placement sees them: one snapshot, kept over the process's life.

Who is up is read anew whenever nodes are chosen; metadata is the truth. Between two looks the
list of live nodes is watched for those that leave, so that one that comes and goes is known for
it, and the switches are watched, so that writers follow them without being started again. The
watching begins with the first look: a process that places nothing watches nothing.
"""

import logging
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
from topology.stream_policy import DEFAULT_LOCATION, PlacementPlace
from topology.switches import PlacementSwitches
from topology.tree import Weighting

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Pause before metadata that did not answer is watched again."""


@attrs.frozen
class ClusterSnapshot:
    """The nodes at one moment."""

    members: Membership
    """By instance id."""
    records: Mapping[InstanceId, NodeRecord]
    """Those that are up, and those that left a while ago, as they were."""
    place: PlacementPlace
    """Where the client stands, and which regions are forbidden."""
    now_s: float

    def member(self, node: str) -> Member:
        """A node as a member of an ensemble, where it stands now."""
        record = self.records[InstanceId(node)]
        location = self.members.location_of(node)
        return Member(record.instance, record.node_id, location)

    def excluded(self, instances: Iterable[InstanceId] = ()) -> frozenset[str]:
        """These, and the nodes that nothing new is placed on."""
        return self.place.excluded(self.members) | frozenset(instances)


class ClusterNodes:
    """Follows the nodes of one cluster; the node pool has one."""

    def __init__(
        self,
        metadata: Metadata,
        cluster: str,
        config: PlacementConfig,
        *,
        live_nodes: Callable[[], Awaitable[list[NodeRecord]]],
        nursery: trio.Nursery,
    ) -> None:
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
        # What the snapshot was made from; None if nodes left since.
        self._settled: tuple[list[NodeRecord], Mapping[InstanceId, Location]] | None = None
        self._is_watching = False
        self.switches = PlacementSwitches()
        """As they were seen last."""

    async def look(self, region: str | None) -> ClusterSnapshot:
        """All nodes as they are now, for a client in this region."""
        live, _ = await both(self._live_nodes, self._begin_watching)
        self._observe(live, await self._locations.locate(live))
        return ClusterSnapshot(
            self._members, self._records, self.place(region), trio.current_time()
        )

    async def _begin_watching(self) -> None:
        """Read the switches, and watch what changes from now on; nothing if that was begun."""
        if self._is_watching:
            return
        self.switches = await read_switches(self._metadata, self._cluster)
        if not self._is_watching:  # Several may look at once.
            self._is_watching = True
            self._nursery.start_soon(self._run_watching_switches)
            self._nursery.start_soon(self._run_watching_departures)

    async def resolved(self, records: list[NodeRecord]) -> list[NodeRecord]:
        """These records with the places that the client's table or script knows better."""
        found = await self._locations.locate(records)
        return [attrs.evolve(one, location=found[one.instance]) for one in records]

    def place(self, region: str | None) -> PlacementPlace:
        """Where a client of this region stands, and what is forbidden now."""
        config = self._config
        return PlacementPlace(
            local=config.standing(region),
            weighting=Weighting(config.weight_multiple_max)
            if config.weight_by_free_space
            else None,
            forbidden_regions=self.switches.forbidden_regions,
        )

    def _observe(
        self, live: list[NodeRecord], locations: Mapping[InstanceId, Location]
    ) -> None:
        now_s = trio.current_time()
        if self._settled == (live, locations):
            return  # The snapshot stays, and with it what was worked out from it.
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

    # What is watched between two looks.

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
        """Those that are not in the list any more have left; who is new is read when needed."""
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
            _log.warning("what placement goes by cannot be read: %s", error)
        await trio.sleep(_RETRY_S)
