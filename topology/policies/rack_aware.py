"""Rack-aware placement: every write set spans at least `min_racks` racks.

A rack is a whole location. Each rack is used once before any is used again, the client's own
first, then those of its region: to this policy other regions are just farther away. Where the
rule is not enforced and cannot be kept, the racks are spread as evenly as possible, and the
adherence says FAIL.
"""

import itertools
import random
from collections.abc import Collection, Iterator, Sequence

import attrs

from topology.draws import shuffled
from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership
from topology.policies.ring_policy import RingPolicy
from topology.policy import Placement, PlacementRequest
from topology.ring.obstacle import obstacle_of
from topology.ring.search import PlacementUndecidedError, find_ring
from topology.ring.window_rule import Adherence, Label, Limit, WindowRule
from topology.tree import Tree, TreeNode


@attrs.frozen(kw_only=True)
class RackAware(RingPolicy):
    """At least `min_racks` racks (or W, if that is less) in every write set."""

    min_racks: int = 2
    soft_racks: int | None = None
    """With fewer than `min_racks` an ensemble is SOFT if it has this many; None: it fails."""
    is_enforced: bool = False
    """Refuse to place against the rule; nodes of unknown location are then left out."""

    def _rule(self, write_quorum: int, ack_quorum: int) -> WindowRule:  # noqa: ARG002
        racks = min(write_quorum, self.min_racks)
        least = racks if self.soft_racks is None else min(racks, self.soft_racks)
        strict = (Limit(racks - 1, 1),) if least < racks else ()
        return WindowRule(write_quorum, strict, (Limit(least - 1, 1),))

    def _label(self, location: Location) -> Label:
        return (str(location),)

    def _counted(self, members: Membership, node: str) -> Label | None:
        return None if self._must_go(members, node) else super()._counted(members, node)

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """STRICT, SOFT or FAIL; where enforced, a node of unknown location fails it."""
        if any(self._must_go(members, node) for node in ensemble):
            return Adherence.FAIL
        return super().adherence(members, ensemble, write_quorum, ack_quorum)

    def _placed(self, members: Membership, node: str) -> Label | None:
        return None if self._must_go(members, node) else super()._placed(members, node)

    def _must_go(self, members: Membership, node: str) -> bool:
        return self.is_enforced and members.location_of(node) == self.default_location

    def _allowed(self, tree: Tree) -> Tree:
        return tree.without_rack(self.default_location) if self.is_enforced else tree

    def _is_enforced(self) -> bool:
        return self.is_enforced

    def _nearness(
        self,
        ring: Sequence[Location | None],
        slot: int,  # noqa: ARG002 - All slots are alike.
        gone: Location,
        node: TreeNode,
    ) -> tuple[int, ...]:
        if node.location == gone:
            return (0, 0)
        return (1, sum(place == node.location for place in ring))

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E nodes; the rack of the client first."""

        def place(tree: Tree) -> Placement:
            nodes, is_undecided = self._place(tree, request, rng)
            return Placement(
                nodes,
                self.adherence(members, nodes, request.write_quorum, request.ack_quorum),
                is_undecided,
            )

        return self.best_placed(members, request, place)

    def _place(
        self, tree: Tree, request: PlacementRequest, rng: random.Random
    ) -> tuple[tuple[str, ...], bool]:
        """The nodes, and whether others might adhere better (unknown)."""
        size = request.ensemble_size
        racks = self._racks(tree, rng)
        counts = {self._label(where): count for where, count in racks}
        if sum(counts.values()) < size:
            raise NotEnoughNodesError(
                f"the ensemble needs {size} nodes that are up, allowed and not excluded;"
                f" {tree.count} are available: {size - tree.count} short (racks:"
                f" {len(counts)})"
            )
        rule = self._rule(request.write_quorum, request.ack_quorum)
        ring, is_undecided = self._ring(size, counts, rule)
        used = set(ring)
        piles = {
            label: self.drawn(tree.regions[where.region].racks[where.rack], rng)
            for where, _ in racks
            if (label := self._label(where)) in used
        }
        return tuple(next(piles[label]).node for label in ring), is_undecided

    def _racks(self, tree: Tree, rng: random.Random) -> list[tuple[Location, int]]:
        """The racks in order of use, each with its number of nodes."""
        places = [
            (Location(name, rack), len(region.racks[rack]))
            for name, region in sorted(tree.regions.items())
            for rack in region.rack_names
        ]
        if self.weighting is None:
            order = list(shuffled(places, rng))
        else:
            first = (node.location for node in self.drawn(list(tree.nodes()), rng))
            counts = dict(places)
            order = [(place, counts[place]) for place in dict.fromkeys(first)]
        return sorted(order, key=lambda one: self.distance(one[0]))

    def _ring(
        self, size: int, counts: dict[Label, int], rule: WindowRule
    ) -> tuple[Sequence[Label], bool]:
        if len(counts) >= size:  # Each slot gets a rack of its own.
            return list(itertools.islice(counts, size)), False
        try:
            found = find_ring(size, counts, rule)
        except PlacementUndecidedError:
            if self.is_enforced:
                raise
            return list(_in_turns(size, counts)), True
        if found is not None:
            return found.labels, found.is_undecided
        if not self.is_enforced:
            return list(_in_turns(size, counts)), False
        obstacle = obstacle_of(size, counts, rule, Adherence.SOFT)
        raise NotEnoughNodesError(
            f"no ensemble of {size} has {min(rule.width, self.min_racks)} racks in every"
            f" write set of {rule.width}: "
            + (
                "no order of the racks that are up achieves this"
                if obstacle is None
                else obstacle.told("rack")
            )
        )

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,
        ack_quorum: int,  # noqa: ARG002 - The interface's; the ledger counts its own acks.
    ) -> bool:
        """Whether they span `min_racks` racks, or W if that is less."""
        labels = {self._counted(members, node) for node in acked} - {None}
        return len(labels) >= min(write_quorum, self.min_racks)


def _in_turns(size: int, counts: dict[Label, int]) -> Iterator[Label]:
    left = dict(counts)
    for _ in range(size):
        label = max(left, key=lambda one: (min(left[one], 1), -(counts[one] - left[one])))
        left[label] -= 1
        yield label
