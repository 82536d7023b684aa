"""The common part of rack-, region- and zone-aware placement: a rule for every write set.

A policy defines the rule, the label of a node, and the usable nodes. Adherence, the replacement
of a node, and repair follow from these.

Rules: PROTOCOL P2 and P4.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import attrs

from topology.draws import capped_weights, running_sums, shuffled, shuffled_by_weight
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership, NodeUse
from topology.policy import NodeReplacement, Placement, PlacementRequest
from topology.replacement import JUDGED_MAX, Replacement, labels_for_slots
from topology.ring.repair import repair_ring
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence, Label, WindowRule, rank_of
from topology.tree import Tree, TreeNode, Weighting


@attrs.frozen(kw_only=True)
class RingPolicy:
    """The common part. Subclasses define `_rule`, `_label` and `_allowed`."""

    default_location: Location
    """Location of nodes whose location is unknown."""
    local_location: Location | None = None
    """The client's location; None if unknown."""
    weighting: Weighting | None = None
    """Draw by free space; None: every node alike."""

    def _rule(self, write_quorum: int, ack_quorum: int) -> WindowRule:
        raise NotImplementedError  # abstract

    def _label(self, location: Location) -> Label:
        raise NotImplementedError  # abstract

    def _allowed(self, tree: Tree) -> Tree:
        raise NotImplementedError  # abstract

    def _is_enforced(self) -> bool:
        raise NotImplementedError  # abstract

    def _nearness(
        self, ring: Sequence[Location | None], slot: int, gone: Location, node: TreeNode
    ) -> tuple[int, ...]:
        """How well a node suits a slot apart from adherence, smallest best."""
        raise NotImplementedError  # abstract

    def _counted(self, members: Membership, node: str) -> Label | None:
        """The label of a member of an ensemble; None if it does not count."""
        if members.state_of(node) is not NodeUse.WRITABLE:
            return None
        return self._label(members.location_of(node))

    def _placed(self, members: Membership, node: str) -> Label | None:
        """The label of a node's present or last location, whether or not it counts now.

        Other members that are down will be replaced in their turn, mostly near by.
        """
        return self._label(members.location_of(node))

    def _must_go(self, members: Membership, node: str) -> bool:  # noqa: ARG002 - Subclasses look.
        """Whether no ensemble with this node can adhere."""
        return False

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """How well an ensemble adheres now; an empty one does not."""
        if not ensemble:
            return Adherence.FAIL
        labels = [self._counted(members, node) for node in ensemble]
        return self._rule(write_quorum, ack_quorum).judge(labels)

    def free(
        self, members: Membership, request: PlacementRequest, taken: Collection[str] = ()
    ) -> Iterator[Tree]:
        """The usable nodes: those that are up, then also those just departed."""
        held = members.held_back(request.now_s)
        out = sorted({*request.exclude, *taken})
        tree = self._allowed(_without(members.writable, members, out))
        yield _without(tree, members, sorted(held))
        if held:
            yield tree
        departed = self._allowed(_without(members.last_resort(request.now_s), members, out))
        if departed.count:
            for node in departed.nodes():
                tree = tree.with_node(node)
            yield tree

    def best_placed(
        self,
        members: Membership,
        request: PlacementRequest,
        place: Callable[[Tree], Placement],
    ) -> Placement:
        """The best placement on the nodes of `free`, the first among equals.

        NotEnoughNodesError, as raised for the first of them, if none gives a placement.
        """
        best: Placement | None = None
        error: NotEnoughNodesError | None = None
        is_undecided = False
        for tree in self.free(members, request):
            try:
                found = place(tree)
            except NotEnoughNodesError as refusal:
                error = error or refusal
                is_undecided = is_undecided or isinstance(refusal, PlacementUndecidedError)
                continue
            is_undecided = is_undecided or found.is_undecided
            if found.adherence is Adherence.STRICT:
                return found
            if best is None or rank_of(found.adherence) > rank_of(best.adherence):
                best = found
        if best is None:
            assert error is not None
            raise error
        return attrs.evolve(best, is_undecided=is_undecided)

    def replace_node(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,
    ) -> NodeReplacement:
        """The best node outside the ensemble for one slot: adherence first, then nearness."""
        slot = slot_of(ensemble, node)
        checked_ensemble(ensemble, request)
        seen = 0
        for tree in self.free(members, request, ensemble):
            seen = tree.count
            found = self._best(members, request, ensemble, slot, tree, rng)
            if found is not None:
                ring = [*ensemble[:slot], found.node, *ensemble[slot + 1 :]]
                return NodeReplacement(
                    found.node,
                    self.adherence(members, ring, request.write_quorum, request.ack_quorum),
                )
        raise NotEnoughNodesError(
            f"node {node!r} ({members.location_of(node)}) cannot be replaced:"
            + (
                f" none of the {seen} nodes that are up, allowed and not in the ensemble keeps"
                " its write sets adherent"
                if seen
                else " no node is up, allowed and not in the ensemble"
            )
            + f" (E {request.ensemble_size} W {request.write_quorum}"
            f" A {request.ack_quorum})"
        )

    def replace_slots(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slots: Collection[int],
        rng: random.Random,
    ) -> Replacement:
        """Nodes for as many of these slots as possible, on racks that the ring uses least."""
        checked_ensemble(ensemble, request)
        ring = [self._placed(members, node) for node in ensemble]
        rule = self._rule(request.write_quorum, request.ack_quorum)
        census = "none"
        is_undecided = False
        for tree in self.free(members, request, ensemble):
            census = ", ".join(f"{name}: {count}" for name, count in tree.counts.items())
            piles = self._piles(members, tree, rng)
            found = labels_for_slots(
                rule,
                ring,
                list(slots),
                {label: len(pile) for label, pile in piles.items()},
                is_best_effort=not self._is_enforced(),
            )
            is_undecided = is_undecided or found.is_cut_off
            if found.labels:
                after = [found.labels.get(slot, label) for slot, label in enumerate(ring)]
                kept = [node for slot, node in enumerate(ensemble) if slot not in found.labels]
                racks = Counter(members.location_of(node) for node in kept)
                taken = _take(found.labels, piles, racks)
                return Replacement(taken, rule.judge(after), is_undecided)
        if is_undecided:
            raise PlacementUndecidedError(
                f"found no node for the slots of an ensemble of {len(ensemble)} within"
                f" {JUDGED_MAX} judged write sets, though there may be one; free nodes:"
                f" {census}"
            )
        regions = " ".join(members.location_of(node).region for node in ensemble)
        raise NotEnoughNodesError(
            "no node that is up and allowed can take a slot in an ensemble (E"
            f" {request.ensemble_size} W {request.write_quorum} A {request.ack_quorum}) of"
            f" {regions}; free nodes: {census or 'none'}"
        )

    def _piles(
        self, members: Membership, tree: Tree, rng: random.Random
    ) -> dict[Label, list[TreeNode]]:
        """The nodes of a tree by label, as drawn: those of the own rack, then region, first."""
        piles: dict[Label, list[TreeNode]] = {}
        drawn = self.drawn(list(tree.nodes()), rng)
        for one in sorted(drawn, key=lambda node: self.distance(node.location)):
            label = self._placed(members, one.node)
            if label is not None:
                piles.setdefault(label, []).append(one)
        return piles

    def distance(self, place: Location) -> int:
        """0 for the client's own rack, 1 for others of its region, 2 for other regions."""
        local = self.local_location
        if local is None or place.region != local.region:
            return 2
        return 0 if place == local else 1

    def _best(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slot: int,
        tree: Tree,
        rng: random.Random,
    ) -> TreeNode | None:
        rule = self._rule(request.write_quorum, request.ack_quorum)
        ring = [self._placed(members, one) for one in ensemble]
        places: list[Location | None] = [members.location_of(one) for one in ensemble]
        places[slot] = None
        gone = members.location_of(ensemble[slot])
        is_bound = self._binds(rule, ring, slot)
        judged: dict[Label | None, int] = {}
        best: list[TreeNode] = []
        best_key: tuple[int, ...] | None = None
        for one in tree.nodes():
            label = self._placed(members, one.node)
            if label not in judged:
                judged[label] = _rank_with(rule, ring, slot, label)
            if is_bound and not judged[label]:
                continue
            key = (-judged[label], *self._nearness(places, slot, gone, one))
            if best_key is None or key < best_key:
                best, best_key = [one], key
            elif key == best_key:
                best.append(one)
        return next(self.drawn(best, rng), None)

    def _binds(self, rule: WindowRule, ring: Sequence[Label | None], slot: int) -> bool:  # noqa: ARG002 - Subclasses look.
        """Whether a node must be refused that leaves a write set of the slot not adherent."""
        return self._is_enforced()

    def drawn(self, nodes: Sequence[TreeNode], rng: random.Random) -> Iterator[TreeNode]:
        """These nodes in random order, by weight where weights are on."""
        if self.weighting is None or not nodes:
            return shuffled(nodes, rng)
        weights = capped_weights(
            [node.free_bytes for node in nodes], self.weighting.multiple_max
        )
        return shuffled_by_weight(nodes, running_sums(weights), rng)

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,
    ) -> Placement:
        """The ensemble with the fewest changes that make it adhere; empty when none do."""
        checked_ensemble(ensemble, request)
        write_quorum, ack_quorum = request.write_quorum, request.ack_quorum
        now = self.adherence(members, ensemble, write_quorum, ack_quorum)
        leaving = request.leaving.intersection(ensemble)
        if rank_of(now) >= rank_of(request.wanted) and not leaving:
            return Placement(tuple(ensemble), now)
        tree = next(self.free(members, request, ensemble))
        labels = [self._counted(members, node) for node in ensemble]
        usable = {node.node for node in self._allowed(_writable(members, ensemble)).nodes()}
        movable = {
            node
            for node, label in zip(ensemble, labels, strict=True)
            if label is not None and node in usable - request.exclude - leaving
        }
        piles: dict[Label, list[TreeNode]] = {}
        for one in self.drawn(list(tree.nodes()), rng):
            found_label = self._counted(members, one.node)
            if found_label is not None:
                piles.setdefault(found_label, []).append(one)
        found = repair_ring(
            labels,
            self._rule(write_quorum, ack_quorum),
            {label: len(pile) for label, pile in piles.items()},
            movable=frozenset(slot for slot, node in enumerate(ensemble) if node in movable),
            must_go=frozenset(
                slot
                for slot, node in enumerate(ensemble)
                if node in leaving or self._must_go(members, node)
            ),
            wanted=request.wanted,
        )
        if found is None:
            return Placement((), Adherence.FAIL)
        moved = [ensemble[slot] for slot in found.labels if ensemble[slot] in movable]
        ring = list(ensemble)
        racks = Counter(members.location_of(node) for node in ensemble if node not in leaving)
        for slot, label in found.labels.items():
            if piles.get(label):
                taken = min(piles[label], key=lambda one: racks[one.location])
                piles[label].remove(taken)
                racks[taken.location] += 1
                ring[slot] = taken.node
            else:
                here = [one for one in moved if self._counted(members, one) == label]
                ring[slot] = here[0]
                moved.remove(here[0])
        after = self.adherence(members, ring, write_quorum, ack_quorum)
        if rank_of(after) < rank_of(request.wanted):
            return Placement((), Adherence.FAIL)
        return Placement(tuple(ring), after)


def _take(
    labels: Mapping[int, Label],
    piles: Mapping[Label, list[TreeNode]],
    racks: Counter[Location],
) -> dict[int, str]:
    """A node for each slot, of its label, on the rack used least."""
    taken: dict[int, str] = {}
    for slot, label in labels.items():
        node = min(piles[label], key=lambda one: racks[one.location])
        piles[label].remove(node)
        racks[node.location] += 1
        taken[slot] = node.node
    return taken


def _writable(members: Membership, nodes: Collection[str]) -> Tree:
    """Those of the nodes that may be written to."""
    return Tree.of(
        TreeNode(node, members.location_of(node))
        for node in nodes
        if members.state_of(node) is NodeUse.WRITABLE
    )


def _without(tree: Tree, members: Membership, nodes: Collection[str]) -> Tree:
    for node in nodes:
        tree = tree.without(TreeNode(node, members.location_of(node)))
    return tree


def _rank_with(
    rule: WindowRule, ring: Sequence[Label | None], slot: int, label: Label | None
) -> int:
    """How well the slot's write sets adhere with this label in it."""
    tried = [*ring[:slot], label, *ring[slot + 1 :]]
    return min(rank_of(rule.judge_window(window)) for window in rule.windows_with(tried, slot))


def slot_of(ensemble: Sequence[str], node: str) -> int:
    """The slot of a node in the ensemble; InvalidArgumentError if it is not a member."""
    if node not in ensemble:
        raise InvalidArgumentError(
            f"node {node!r} is not in the ensemble {', '.join(ensemble) or '(empty)'}"
        )
    return list(ensemble).index(node)


def checked_ensemble(ensemble: Sequence[str], request: PlacementRequest) -> None:
    """InvalidArgumentError unless it has E distinct nodes."""
    if len(set(ensemble)) != len(ensemble):
        twice = [node for node, count in Counter(ensemble).items() if count > 1]
        raise InvalidArgumentError(f"duplicate node {twice[0]!r} in the ensemble")
    if len(ensemble) != request.ensemble_size:
        raise InvalidArgumentError(
            f"the ensemble has {len(ensemble)} nodes, but ensemble_size is"
            f" {request.ensemble_size}"
        )
