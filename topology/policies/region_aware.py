"""Region-aware placement: equal shares over regions, interleaved round the ring; racks within.

The racks of a region take turns. In the writer's own region its own rack comes first: it gets
one of that region's slots, if it has an available node.

With `count`, no A nodes of a write set are in fewer than m regions. With `regions`, the writer
waits for m regions among the answers, and every write set should keep an ack set without any
one region. With m of 0 nothing is enforced, but two regions in a write set are preferred.
"""

import random
from collections.abc import Collection, Iterator, Sequence

import attrs

from topology.draws import shuffled
from topology.errors import InvalidArgumentError, InvalidConfigError, NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership, NodeUse
from topology.policies.ring_policy import RingPolicy
from topology.policy import Placement, PlacementRequest
from topology.quorum import Durability, ack_quorum_smallest
from topology.quorum_rule import region_limits, survival_limits, survival_rule
from topology.ring.obstacle import obstacle_of
from topology.ring.search import FoundRing, PlacementUndecidedError, find_ring
from topology.ring.window_rule import Adherence, Label, Limit, WindowRule
from topology.tree import Tree, TreeNode


@attrs.frozen(kw_only=True)
class RegionAware(RingPolicy):
    """Entries outlive regions."""

    regions_to_write: frozenset[str] = frozenset()
    """The regions that entries should be in; others are written to as well."""
    min_regions: int = 0
    """m: the number of regions that an entry must be in; 0: not enforced."""
    durability: Durability = Durability.COUNT
    wants_survival: bool = False
    """With `count` too, STRICT means that an ack set is left without any one region."""
    regions_lost: int = 1
    nodes_lost: int = 0
    """With survival: the loss that a STRICT ensemble outlives: so many regions, so many nodes
    more."""
    is_enforced_in_replace: bool = True
    is_durability_disabled: bool = False
    """m counts as 1, for new ensembles and replacements: a switch for emergencies."""
    disallowed_regions: frozenset[str] = frozenset()
    """Regions in which nothing new is placed."""
    min_racks: int = 2
    is_racks_enforced: bool = False

    def __attrs_post_init__(self) -> None:
        if self.regions_to_write and len(self.regions_to_write) < self.min_regions:
            raise InvalidConfigError(
                f"min_regions_for_durability {self.min_regions} exceeds the"
                f" {len(self.regions_to_write)} of regions_to_write"
                f" ({', '.join(sorted(self.regions_to_write))}):"
                " name more regions, or lower it"
            )

    @property
    def _m(self) -> int:
        """The number of regions enforced now; 0 if none."""
        if self.is_durability_disabled:
            return 1
        return self.min_regions

    def _rule(self, write_quorum: int, ack_quorum: int) -> WindowRule:
        inner = self.min_racks if self.is_racks_enforced else 1
        m = self._m
        if self.durability is Durability.REGIONS or self.wants_survival:
            rule = survival_rule(write_quorum, ack_quorum, max(m, 1), self.durability)
            strict = survival_limits(
                ack_quorum,
                max(m, 1),
                regions_lost=self.regions_lost,
                nodes_lost=self.nodes_lost,
            )
            return attrs.evolve(rule, strict=strict, inner_min=inner)
        if m == 0:
            wanted = (Limit(min(write_quorum, 2) - 1, 1),)
            return WindowRule(write_quorum, wanted, (), inner)
        limits = region_limits(write_quorum, ack_quorum, m, self.durability)
        return WindowRule(write_quorum, (), limits, inner)

    def _label(self, location: Location) -> Label:
        if self.is_racks_enforced:
            return (location.region, location.rack)
        return (location.region,)

    def _allowed(self, tree: Tree) -> Tree:
        tree = tree.without_regions(self.disallowed_regions & tree.regions.keys())
        return tree.without_rack(self.default_location) if self.is_racks_enforced else tree

    def _is_enforced(self) -> bool:
        return self.is_enforced_in_replace and self._m > 0 and not self.is_durability_disabled

    def _binds(self, rule: WindowRule, ring: Sequence[Label | None], slot: int) -> bool:
        """Enforced, unless the others break a write set already: any node may help then."""
        if not self._is_enforced():
            return False
        others = [*ring[:slot], None, *ring[slot + 1 :]]
        return all(
            rule.may_hold(window, 1, Adherence.SOFT)
            for window in rule.windows_with(others, slot)
        )

    def _nearness(
        self,
        ring: Sequence[Location | None],
        slot: int,  # noqa: ARG002 - All slots are alike.
        gone: Location,
        node: TreeNode,
    ) -> tuple[int, ...]:
        if node.location == gone:
            return (0, 0, 0)
        if node.location.region == gone.region:
            return (1, 0, sum(place == node.location for place in ring))
        shares = sum(
            place is not None and place.region == node.location.region for place in ring
        )
        return (2, shares, sum(place == node.location for place in ring))

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E nodes in equal shares over the regions, the client's own region first."""
        self._check_quorums(request.write_quorum, request.ack_quorum)

        def place(tree: Tree) -> Placement:
            ring = self._ring(tree, request, rng)
            adherence = ring.adherence
            nodes = tuple(node.node for node in self._nodes(tree, ring.labels, rng))
            if any(members.state_of(node) is not NodeUse.WRITABLE for node in nodes):
                # A node taken as a last resort does not count before it is back.
                adherence = self.adherence(
                    members, nodes, request.write_quorum, request.ack_quorum
                )
            return Placement(nodes, adherence, is_undecided=ring.is_undecided)

        return self.best_placed(members, request, place)

    def _check_quorums(self, write_quorum: int, ack_quorum: int) -> None:
        m = self._m
        if m > write_quorum:
            raise InvalidArgumentError(
                f"write_quorum {write_quorum} cannot span {m} regions; the smallest that can"
                f" is {m}"
            )
        smallest = ack_quorum_smallest(write_quorum, m, self.durability)
        if ack_quorum < smallest:
            raise InvalidArgumentError(
                f"ack_quorum {ack_quorum} does not make an entry durable in {m} regions with"
                f" write_quorum {write_quorum} and durability {self.durability.value!r}: the"
                f" smallest legal ack quorum is {smallest}"
            )

    def _ring(self, tree: Tree, request: PlacementRequest, rng: random.Random) -> FoundRing:
        size = request.ensemble_size
        order = sorted(
            shuffled(sorted(tree.regions), rng), key=lambda name: name != self._local_region
        )
        if tree.count < size or len(order) < self._m:
            raise NotEnoughNodesError(self._shortage(tree, request))
        counts = {
            label: count for name in order for label, count in self._counts(tree, name, rng)
        }
        rule = self._rule(request.write_quorum, request.ack_quorum)
        try:
            found = find_ring(size, counts, rule)
        except PlacementUndecidedError as error:
            raise PlacementUndecidedError(f"{error} ({_census(tree)})") from None
        if found is not None:
            return found
        obstacle = obstacle_of(size, counts, rule, Adherence.SOFT)
        raise NotEnoughNodesError(
            f"no ensemble fits (E {size} W {request.write_quorum} A {request.ack_quorum},"
            f" {self._m} regions, durability {self.durability.value!r}): "
            + (
                "no order of the regions round the ring keeps every write set durable"
                if obstacle is None
                else obstacle.told("region")
            )
            + f" ({_census(tree)})"
        )

    def _counts(self, tree: Tree, name: str, rng: random.Random) -> Iterator[tuple[Label, int]]:
        region = tree.regions[name]
        if not self.is_racks_enforced:
            yield (name,), region.count
            return
        own = self._own_rack_in(name)
        racks = sorted(shuffled(region.rack_names, rng), key=lambda rack: rack != own)
        for rack in racks:
            yield (name, rack), len(region.racks[rack])

    def _nodes(
        self, tree: Tree, ring: Sequence[Label], rng: random.Random
    ) -> Iterator[TreeNode]:
        piles: dict[Label, Iterator[TreeNode]] = {}
        for label in ring:
            if label not in piles:
                region = tree.regions[label[0]]
                piles[label] = (
                    region.deal(rng, self.weighting, self._own_rack_in(label[0]))
                    if len(label) == 1
                    else self.drawn(region.racks[label[1]], rng)
                )
            yield next(piles[label])

    @property
    def _local_region(self) -> str | None:
        return None if self.local_location is None else self.local_location.region

    def _own_rack_in(self, region: str) -> str | None:
        """The client's own rack, if it is in this region."""
        local = self.local_location
        return local.rack if local is not None and local.region == region else None

    def _shortage(self, tree: Tree, request: PlacementRequest) -> str:
        if len(tree.regions) < self._m:
            missing = sorted(self.regions_to_write - tree.regions.keys())
            return (
                f"entries must be in {self._m} regions, but nodes are up and allowed in"
                f" {len(tree.regions)} ({_census(tree)}): {self._m - len(tree.regions)} short"
                + (f"; no node is up and allowed in {', '.join(missing)}" if missing else "")
                + self._forbidden()
            )
        return (
            f"the ensemble needs {request.ensemble_size} nodes that are up, allowed and not"
            f" excluded; {tree.count} are available ({_census(tree)}):"
            f" {request.ensemble_size - tree.count} short{self._forbidden()}"
        )

    def _forbidden(self) -> str:
        """The forbidden regions, as the end of a refusal."""
        regions = sorted(self.disallowed_regions)
        return f"; placement is forbidden in {', '.join(regions)}" if regions else ""

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,  # noqa: ARG002 - The interface's: regions and A are enough here.
        ack_quorum: int,
    ) -> bool:
        """Whether they are an ack set: at least A nodes, in at least m regions."""
        regions = {
            members.location_of(node).region
            for node in acked
            if self._counted(members, node) is not None
        }
        return len(set(acked)) >= ack_quorum and len(regions) >= max(self._m, 1)


def _census(tree: Tree) -> str:
    return ", ".join(f"{name}: {count}" for name, count in tree.counts.items()) or "none"
