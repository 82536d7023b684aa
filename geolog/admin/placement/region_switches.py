"""The regions of a cluster, and the switches that forbid placement in a region.

Entries in a forbidden region stay and can be read; nothing new is placed there. Running writers
follow: what they open from then on avoids the region, and open ledgers leave it if the other
regions have room for an ensemble.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.new_ledgers import NewLedgers, judge_new_ledgers
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.placement_switches import change_switches, read_switches
from geolog.metadata.replaced_nodes import list_replaced_nodes
from geolog.metadata.seam import Freshness
from topology.errors import NoSuchStreamError, NotFoundError
from topology.nearest import suggestion
from topology.quorum import QuorumConfig
from topology.stream_policy import PlacementTerms
from topology.switches import PlacementSwitches


@attrs.frozen(kw_only=True)
class RegionDescription:
    """One region: its nodes by state, and whether placement is allowed."""

    region: str
    placement: str
    """allowed or forbidden."""
    nodes: int
    """Nodes that ever joined, except those that were given up."""
    writable: int
    readonly: int
    down: int
    racks: int
    """Racks of nodes that are up."""
    free_bytes: int
    """Free bytes that the live nodes last reported, in total."""


@attrs.frozen(kw_only=True)
class RegionChange:
    """Outcome of forbidding or allowing placement."""

    region: str
    placement: str
    is_changed: bool
    streams_without_place: list[str]
    """Streams for which no new ledger can be placed on the nodes that are up."""
    streams_undecided: list[str]
    """Streams for which the search for a placement was cut off: the answer is open."""
    streams_less_safe: list[str]
    """Streams whose new ledgers would not be STRICT now: usually, losing another region would
    stop writes to them."""


@attrs.frozen(kw_only=True)
class RegionLoss:
    """The additional effect that forbidding a region would have on streams."""

    without_place: list[str]
    """Streams for which no new ledger could be placed any more."""
    undecided: list[str]
    """Streams for which the search for a placement would be cut off."""


class RegionSwitches:
    """Looks at the regions of one cluster, and turns their switches."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._catalog = StreamCatalog(access.metadata, access.paths)

    async def regions(self) -> list[RegionDescription]:
        """All regions that a node ever joined in, and all that are forbidden."""
        access = self._access
        known = await self._known()
        live = {one.instance: one for one in await self._live()}
        switches = await read_switches(access.metadata, access.cluster)
        names = {one.location.region for one in [*known, *live.values()]}
        nodes = {one.instance: live.get(one.instance, one) for one in [*known, *live.values()]}
        return [
            _described(
                region,
                [one for one in nodes.values() if one.location.region == region],
                live.keys(),
                is_forbidden=region in switches.forbidden_regions,
            )
            for region in sorted(names | switches.forbidden_regions)
        ]

    async def loss_without(self, region: str) -> RegionLoss:
        """Streams that can get a new ledger now, and perhaps not without the region.

        NotFoundError names the nearest region.
        """
        known = await self._known_regions()
        _check_known(region, known)
        switches = await self._switches()
        after = await self._streams(switches.forbidding(region, known))
        before = await self._streams(switches)
        lost = {*before[NewLedgers.UNDECIDED], *before[NewLedgers.WITHOUT_PLACE]}
        return RegionLoss(
            without_place=[one for one in after[NewLedgers.WITHOUT_PLACE] if one not in lost],
            undecided=[one for one in after[NewLedgers.UNDECIDED] if one not in lost],
        )

    async def forbid(self, region: str) -> RegionChange:
        """Forbid placement in this region. NotFoundError names the nearest region."""
        known = await self._known_regions()
        _check_known(region, known)
        before = await self._switches()
        after = await change_switches(
            self._access.metadata,
            self._access.cluster,
            lambda switches: switches.forbidding(region, known),
        )
        return await self._told(region, before, after)

    async def allow(self, region: str) -> RegionChange:
        """Allow placement in this region. NotFoundError if neither it nor a switch exists."""
        before = await self._switches()
        _check_known(region, await self._known_regions() | before.forbidden_regions)
        after = await change_switches(
            self._access.metadata,
            self._access.cluster,
            lambda switches: switches.allowing(region),
        )
        return await self._told(region, before, after)

    async def _told(
        self, region: str, before: PlacementSwitches, after: PlacementSwitches
    ) -> RegionChange:
        is_forbidden = region in after.forbidden_regions
        streams = await self._streams(after)
        return RegionChange(
            region=region,
            placement="forbidden" if is_forbidden else "allowed",
            is_changed=is_forbidden is not (region in before.forbidden_regions),
            streams_without_place=streams[NewLedgers.WITHOUT_PLACE],
            streams_undecided=streams[NewLedgers.UNDECIDED],
            streams_less_safe=streams[NewLedgers.LESS_SAFE],
        )

    async def _switches(self) -> PlacementSwitches:
        metadata, cluster = self._access.metadata, self._access.cluster
        return await read_switches(metadata, cluster, freshness=Freshness.LATEST)

    async def _live(self) -> list[NodeRecord]:
        nodes = self._access.pool.nodes
        live = await list_live_nodes(self._access.metadata, self._access.cluster)
        return await nodes.resolved(live)

    async def _known(self) -> list[NodeRecord]:
        nodes = self._access.pool.nodes
        known = await list_known_nodes(self._access.metadata, self._access.cluster)
        return await nodes.resolved(known)

    async def _known_regions(self) -> frozenset[str]:
        """A region counts for as long as ledgers name a disk of it, even one given up."""
        access = self._access
        replaced = await list_replaced_nodes(access.metadata, access.cluster)
        left = [one.location.region for one in replaced if not one.is_moved]
        return frozenset([*(one.location.region for one in await self._known()), *left])

    async def _streams(self, switches: PlacementSwitches) -> dict[NewLedgers, list[str]]:
        """The streams that can be written, by the prospects of their new ledgers."""
        live = await self._live()
        judged: dict[tuple[PlacementTerms, QuorumConfig], NewLedgers] = {}
        found: dict[NewLedgers, list[str]] = {outcome: [] for outcome in NewLedgers}
        for name in await self._catalog.names():
            try:
                stream = await self._catalog.read(name)
            except NoSuchStreamError:
                continue  # It is being made or deleted, or is gone since it was listed.
            shape = stream.placement, stream.quorum
            if shape not in judged:
                judged[shape] = judge_new_ledgers(
                    stream.placement,
                    stream.quorum,
                    live,
                    switches,
                    self._access.pool.nodes.own_policies,
                )
            if not stream.is_sealed:
                found[judged[shape]].append(str(name))
        return found


def _described(
    region: str, nodes: Sequence[NodeRecord], live: Iterable[str], *, is_forbidden: bool
) -> RegionDescription:
    up = set(live)
    states = Counter(one.state.value if one.instance in up else "down" for one in nodes)
    running = [one for one in nodes if one.instance in up]
    return RegionDescription(
        region=region,
        placement="forbidden" if is_forbidden else "allowed",
        nodes=len(nodes),
        writable=states["writable"],
        readonly=states["readonly"],
        down=states["down"],
        racks=len({one.location.rack for one in running}),
        free_bytes=sum(one.free_bytes for one in running),
    )


def _check_known(region: str, known: frozenset[str]) -> None:
    if region in known:
        return
    hint = suggestion(region, known) if known else "; no node ever joined"
    raise NotFoundError(f"no region {region!r} in this cluster{hint}")
