"""Zone-aware placement: write sets over zones, and over upgrade domains within each zone.

A location is /ZONE/UPGRADE-DOMAIN. A write set spans the desired number of zones (STRICT), or
at least the minimum (SOFT); its nodes in one zone are in two upgrade domains or more. Where
acknowledgements count zones too, STRICT also needs an ack set without any one zone. Strict
placement refuses sizes that it could not keep when a zone goes: E must be a multiple of W, and
W above the minimum. Placement that is not strict does its best and reports the adherence.
"""

import random
from collections import Counter
from collections.abc import Collection, Sequence

import attrs

from topology.draws import shuffled
from topology.errors import InvalidArgumentError, InvalidConfigError, NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership
from topology.policies.ring_policy import RingPolicy
from topology.policy import Placement, PlacementRequest
from topology.quorum_rule import survival_limits
from topology.ring.obstacle import obstacle_of
from topology.ring.search import PlacementUndecidedError, find_ring
from topology.ring.window_rule import Adherence, Label, Limit, WindowRule
from topology.tree import Tree, TreeNode


@attrs.frozen(kw_only=True)
class ZoneAware(RingPolicy):
    """Entries outlive zones, and the rolling upgrade of a zone."""

    desired_zones: int = 3
    min_zones: int = 2
    is_strict: bool = True
    min_regions: int | None = None
    """m of ledgers whose acknowledgements count zones: STRICT then also means that every write
    set keeps an ack set without any one zone. None: acknowledgements count no zones."""

    def __attrs_post_init__(self) -> None:
        if self.min_zones > self.desired_zones:
            raise InvalidConfigError(
                f"min_zones {self.min_zones} exceeds desired_zones {self.desired_zones}: lower"
                " min_zones, or raise desired_zones"
            )

    def _rule(self, write_quorum: int, ack_quorum: int) -> WindowRule:
        desired = min(write_quorum, self.desired_zones)
        least = min(write_quorum, max(self.min_zones, self.min_regions or 0))
        strict: tuple[Limit, ...] = (Limit(desired - 1, 1),)
        if self.min_regions is not None:
            strict += survival_limits(ack_quorum, self.min_regions)
        return WindowRule(
            write_quorum,
            strict,
            (Limit(least - 1, 1), Limit(0, write_quorum)),
            inner_min=2,
        )

    def _label(self, location: Location) -> Label:
        return (location.region, location.rack)

    def _counted(self, members: Membership, node: str) -> Label | None:
        """Departed nodes count: their zone is remembered, and they may come back."""
        location = members.location_of(node)
        return None if location == self.default_location else self._label(location)

    def _placed(self, members: Membership, node: str) -> Label | None:
        return self._counted(members, node)

    def _allowed(self, tree: Tree) -> Tree:
        return tree.without_rack(self.default_location) if self.is_strict else tree

    def _is_enforced(self) -> bool:
        return self.is_strict

    def _nearness(
        self,
        ring: Sequence[Location | None],
        slot: int,
        gone: Location,  # noqa: ARG002 - What counts are the neighbours.
        node: TreeNode,
    ) -> tuple[int, ...]:
        """Prefer the farthest from its zone's nearest slot, then an unused upgrade domain."""
        size = len(ring)
        distances = [
            min((slot - other) % size, (other - slot) % size)
            for other, place in enumerate(ring)
            if place is not None and place.region == node.location.region
        ]
        apart = min([*distances, self.desired_zones])
        return (-apart, sum(place == node.location for place in ring))

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """STRICT with the desired zones in every write set, SOFT with the minimum."""
        if not ensemble or self._illegal(len(ensemble), write_quorum):
            return Adherence.FAIL
        return super().adherence(members, ensemble, write_quorum, ack_quorum)

    def _illegal(self, ensemble_size: int, write_quorum: int) -> str | None:
        if ensemble_size % write_quorum:
            nearest = -(-ensemble_size // write_quorum) * write_quorum
            return (
                f"ensemble_size {ensemble_size} is not a multiple of write_quorum"
                f" {write_quorum}: write sets that wrap round the ring would span fewer zones;"
                f" {nearest} is"
            )
        if write_quorum <= self.min_zones:
            return (
                f"write_quorum {write_quorum} is not above min_zones {self.min_zones}: no node"
                " could be replaced when a zone goes; the smallest write quorum is"
                f" {self.min_zones + 1}"
            )
        return None

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E nodes, zones taking turns, and upgrade domains within each zone."""
        illegal = self._illegal(request.ensemble_size, request.write_quorum)
        if self.is_strict and illegal is not None:
            raise InvalidArgumentError(illegal)

        def place(tree: Tree) -> Placement:
            nodes, is_undecided = self._place(tree, request, rng)
            return Placement(
                nodes,
                self.adherence(members, nodes, request.write_quorum, request.ack_quorum),
                is_undecided and illegal is None,
            )

        return self.best_placed(members, request, place)

    def _place(
        self, tree: Tree, request: PlacementRequest, rng: random.Random
    ) -> tuple[tuple[str, ...], bool]:
        """The nodes, and whether others might adhere better (unknown)."""
        size = request.ensemble_size
        if tree.count < size:
            raise NotEnoughNodesError(
                f"the ensemble needs {size} nodes that are up, allowed and not excluded;"
                f" {tree.count} are available ({_census(tree)}):"
                f" {size - tree.count} short"
            )
        ring, is_undecided = self._ring(tree, request, rng)
        if ring is None:  # Not strict, and nothing adheres: any nodes will do.
            drawn = self.drawn(list(tree.nodes()), rng)
            return tuple(next(drawn).node for _ in range(size)), is_undecided
        piles = {
            label: self.drawn(tree.regions[label[0]].racks[label[1]], rng)
            for label in dict.fromkeys(ring)
        }
        return tuple(next(piles[label]).node for label in ring), is_undecided

    def _ring(
        self, tree: Tree, request: PlacementRequest, rng: random.Random
    ) -> tuple[Sequence[Label] | None, bool]:
        known = tree.without_rack(self.default_location)
        zones = sorted(
            shuffled(sorted(known.regions), rng), key=lambda name: name != self._local_zone
        )
        counts: Counter[Label] = Counter()
        for name in zones:
            for domain in shuffled(known.regions[name].rack_names, rng):
                counts[name, domain] = len(known.regions[name].racks[domain])
        rule = self._rule(request.write_quorum, request.ack_quorum)
        try:
            found = find_ring(request.ensemble_size, counts, rule)
        except PlacementUndecidedError:
            if self.is_strict:
                raise
            return None, True
        if found is not None:
            return found.labels, found.is_undecided
        if not self.is_strict:
            return None, False
        obstacle = obstacle_of(request.ensemble_size, counts, rule, Adherence.SOFT)
        raise NotEnoughNodesError(
            f"no ensemble of {request.ensemble_size} has {self.min_zones} zones in every write"
            f" set of {request.write_quorum}, and two upgrade domains for nodes of one zone"
            f" ({_census(known)})" + ("" if obstacle is None else f": {obstacle.told('zone')}")
        )

    @property
    def _local_zone(self) -> str | None:
        return None if self.local_location is None else self.local_location.region

    def is_acked_adhering(
        self, members: Membership, acked: Collection[str], write_quorum: int, ack_quorum: int
    ) -> bool:
        """At least A nodes, in `min_zones` zones, or W if that is less."""
        zones = {members.location_of(node).region for node in acked}
        return len(zones) >= min(write_quorum, self.min_zones) and len(set(acked)) >= ack_quorum


def _census(tree: Tree) -> str:
    return ", ".join(f"{name}: {count}" for name, count in tree.counts.items()) or "none"
