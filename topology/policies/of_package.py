"""Placement by a policy of another package: asks it, and checks what it answers.

The policy chooses; the core keeps the rules that hold for every ensemble: distinct nodes, all
of them free, and an ack set in every write set. A policy that breaks one of them, or raises, is
refused with an error that names it; nothing is placed. For streams whose policy this process
does not know, `UnknownPolicy` refuses to place and judges by the quorums alone.

Rules: PROTOCOL P15.
"""

import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from typing import NoReturn

import attrs

from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, NodeUse
from topology.own_policy import OwnPlacement, PolicyFailedError, Ring, UnknownPolicyError
from topology.policies.ring_policy import checked_ensemble, slot_of
from topology.policy import NodeReplacement, Placement, PlacementRequest
from topology.quorum import AckRule, QuorumConfig
from topology.replacement import Replacement
from topology.ring.window_rule import Adherence, rank_of

_RINGS_ASKED_MAX = 200
"""Choices of slots to open in one repair; beyond that it is undecided."""


@attrs.frozen
class OfPackage:
    """Places as a policy of another package does."""

    name: str
    own: OwnPlacement = attrs.field(eq=False)
    quorum: QuorumConfig
    local_location: Location | None = None

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E distinct free nodes, with an ack set in every write set."""
        best: Placement | None = None
        refused: NotEnoughNodesError | None = None
        for free in _free(members, request):
            try:
                placed = self._placed(members, request, free, rng)
            except NotEnoughNodesError as error:
                refused = refused or error
                continue
            if placed.adherence is Adherence.STRICT:
                return placed
            if best is None or rank_of(placed.adherence) > rank_of(best.adherence):
                best = placed
        if best is None:
            assert refused is not None
            raise refused
        return best

    def _placed(
        self,
        members: Membership,
        request: PlacementRequest,
        free: Sequence[KnownNode],
        rng: random.Random,
    ) -> Placement:
        size = request.ensemble_size
        chosen = self._filled([None] * size, free, rng)
        if len(chosen) < size:
            raise NotEnoughNodesError(
                f"policy {self.name!r} found nodes for {len(chosen)} of {size} slots;"
                f" {len(free)} nodes are up and not excluded"
            )
        nodes = tuple(chosen[slot] for slot in range(size))
        places = [members.location_of(node) for node in nodes]
        if not _acks_all(self.quorum, places):
            self._fail(
                "chose an ensemble with a write set that has no ack set: "
                + ", ".join(f"{node} in {members.location_of(node)}" for node in nodes)
            )
        return Placement(nodes, self._judged(members, nodes, is_counting_all=True))

    def replace_node(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,
    ) -> NodeReplacement:
        """A free node for the slot of one member."""
        slot = slot_of(ensemble, node)
        found = self.replace_slots(members, request, ensemble, [slot], rng)
        return NodeReplacement(found.nodes[slot], found.adherence)

    def replace_slots(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slots: Collection[int],
        rng: random.Random,
    ) -> Replacement:
        """Free nodes for those of the slots that the policy fills."""
        checked_ensemble(ensemble, request)
        best: Replacement | None = None
        for free in _free(members, request, ensemble):
            kept = [
                None if slot in slots else _member(members, node)
                for slot, node in enumerate(ensemble)
            ]
            chosen = self._filled(kept, free, rng)
            ring = [chosen.get(slot, node) for slot, node in enumerate(ensemble)]
            adherence = self._judged(members, ring, is_counting_all=True)
            found = Replacement(chosen, adherence)
            if len(chosen) == len(set(slots)) and adherence is Adherence.STRICT:
                return found
            if best is None or _worth(found) > _worth(best):
                best = found
        assert best is not None
        if not best.nodes:
            raise NotEnoughNodesError(
                f"policy {self.name!r} found no node for slots"
                f" {', '.join(str(slot) for slot in sorted(slots))} of {', '.join(ensemble)}"
            )
        return best

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,
    ) -> Placement:
        """The ensemble with the fewest changes that adheres as wanted; empty when none does.

        Leaving members and those that do not count go; then ever more of the others, until as
        many rings were asked for as is bearable.
        """
        checked_ensemble(ensemble, request)
        free = next(_free(members, request, ensemble))
        gone = [slot for slot, node in enumerate(ensemble) if node in request.leaving]
        asked_count = 0
        for more in _more_slots([slot for slot in range(len(ensemble)) if slot not in gone]):
            if asked_count == _RINGS_ASKED_MAX:
                return Placement((), Adherence.FAIL, is_undecided=True)
            asked_count += 1
            kept = [
                None if slot in gone or slot in more else _member(members, node)
                for slot, node in enumerate(ensemble)
            ]
            chosen = self._filled(kept, free, rng) if None in kept else {}
            if len(chosen) < len(gone) + len(more):
                continue
            ring = tuple(chosen.get(slot, node) for slot, node in enumerate(ensemble))
            adherence = self.adherence(members, ring, request.write_quorum, request.ack_quorum)
            if rank_of(adherence) >= rank_of(request.wanted):
                return Placement(ring, adherence)
        return Placement((), Adherence.FAIL)

    def adherence(
        self,
        members: Membership,
        ensemble: Sequence[str],
        write_quorum: int,  # noqa: ARG002 - The ledger's own quorums count.
        ack_quorum: int,  # noqa: ARG002
    ) -> Adherence:
        """How well the policy says that an ensemble adheres; FAIL without its ack sets."""
        return self._judged(members, ensemble, is_counting_all=False)

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,
    ) -> bool:
        """Whether the quorums are met; a policy of another package cannot ask for more."""
        return _is_acked(self.quorum, members, acked, ack_quorum)

    def _judged(
        self, members: Membership, ensemble: Sequence[str], *, is_counting_all: bool
    ) -> Adherence:
        """The policy's judgement, never better than FAIL where an ack set is missing."""
        slots = tuple(
            _member(members, node)
            if is_counting_all or members.state_of(node) is NodeUse.WRITABLE
            else None
            for node in ensemble
        )
        if not _acks_all(self.quorum, [one.location if one else None for one in slots]):
            return Adherence.FAIL
        ring = Ring(quorum=self.quorum, slots=slots, local=self.local_location)
        try:
            found = self.own.adherence(ring)
        except Exception as error:  # noqa: BLE001 - Foreign code may raise anything.
            self._fail(f"failed to judge {_named(slots)}: {error!r}", error)
        if not isinstance(found, Adherence):
            self._fail(f"judged {_named(slots)} as {found!r}, which is no Adherence")
        return found

    def _filled(
        self, slots: Sequence[KnownNode | None], free: Sequence[KnownNode], rng: random.Random
    ) -> dict[int, str]:
        """The policy's choice for the open slots, once it is allowed. PolicyFailedError."""
        ring = Ring(quorum=self.quorum, slots=tuple(slots), local=self.local_location)
        try:
            found = dict(self.own.fill(ring, free, rng))
        except NotEnoughNodesError:
            raise  # It says itself what is missing.
        except Exception as error:  # noqa: BLE001 - Foreign code may raise anything.
            self._fail(f"failed to choose nodes: {error!r}", error)
        left = {node.node for node in free}
        open_slots = set(ring.open_slots)
        for slot, node in found.items():
            if slot not in open_slots:
                self._fail(
                    f"chose a node for slot {slot!r}; the open slots are"
                    f" {', '.join(map(str, ring.open_slots))}"
                )
            if node not in left:
                why = "twice" if node in {one.node for one in free} else "which is not free"
                self._fail(f"chose node {node!r} for slot {slot}, {why}")
            left.remove(node)
        return {slot: found[slot] for slot in sorted(found)}

    def _fail(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise PolicyFailedError(
            f"placement policy {self.name!r} {why} ({self.quorum})"
        ) from cause


@attrs.frozen
class UnknownPolicy:
    """Stands for a policy that this process does not know: it places nothing."""

    name: str
    why: str
    quorum: QuorumConfig

    def new_ensemble(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        rng: random.Random,  # noqa: ARG002
    ) -> Placement:
        """UnknownPolicyError."""
        raise UnknownPolicyError(self.why)

    def replace_node(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        ensemble: Sequence[str],  # noqa: ARG002
        node: str,  # noqa: ARG002
        rng: random.Random,  # noqa: ARG002
    ) -> NodeReplacement:
        """UnknownPolicyError."""
        raise UnknownPolicyError(self.why)

    def replace_slots(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        ensemble: Sequence[str],  # noqa: ARG002
        slots: Collection[int],  # noqa: ARG002
        rng: random.Random,  # noqa: ARG002
    ) -> Replacement:
        """UnknownPolicyError."""
        raise UnknownPolicyError(self.why)

    def repair(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        ensemble: Sequence[str],  # noqa: ARG002
        rng: random.Random,  # noqa: ARG002
    ) -> Placement:
        """UnknownPolicyError."""
        raise UnknownPolicyError(self.why)

    def adherence(
        self,
        members: Membership,
        ensemble: Sequence[str],
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
    ) -> Adherence:
        """STRICT as far as is known: the quorums hold. FAIL if an ack set is missing."""
        places = [
            members.location_of(node) if members.state_of(node) is NodeUse.WRITABLE else None
            for node in ensemble
        ]
        return Adherence.STRICT if _acks_all(self.quorum, places) else Adherence.FAIL

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,
    ) -> bool:
        """Whether the quorums are met."""
        return _is_acked(self.quorum, members, acked, ack_quorum)


def _free(
    members: Membership, request: PlacementRequest, taken: Collection[str] = ()
) -> Iterator[list[KnownNode]]:
    """Nodes that may be taken: first without flapping ones; at last, departed ones too."""
    held = members.held_back(request.now_s)
    departed = {one.node for one in members.last_resort(request.now_s).nodes()}
    out = {*request.exclude, *request.leaving, *taken}
    usable = [
        one
        for name, one in sorted(members.members.items())
        if name not in out and (one.state is NodeUse.WRITABLE or name in departed)
    ]
    up = [one for one in usable if one.node not in departed]
    yield [one for one in up if one.node not in held]
    if held:
        yield up
    if len(usable) > len(up):
        yield usable


def _member(members: Membership, node: str) -> KnownNode:
    """A member of an ensemble; one that is not known counts where unknown nodes do."""
    return members.members.get(node) or KnownNode(
        node=node, location=members.location_of(node), state=NodeUse.NEVER_REGISTERED
    )


def _more_slots(slots: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(slots) + 1):
        yield from itertools.combinations(slots, count)


def _worth(found: Replacement) -> tuple[int, int]:
    return len(found.nodes), rank_of(found.adherence)


def _acks_all(quorum: QuorumConfig, places: Sequence[Location | None]) -> bool:
    """Whether every write set has an ack set; None stands for a node that does not count."""
    if len(places) != quorum.ensemble_size:
        return False
    there = sum(1 << slot for slot, place in enumerate(places) if place is not None)
    rule = AckRule(quorum, ["" if place is None else place.region for place in places])
    return rule.acks_all(there)


def _is_acked(
    quorum: QuorumConfig, members: Membership, acked: Collection[str], ack_quorum: int
) -> bool:
    regions = {members.location_of(node).region for node in acked}
    return len(set(acked)) >= ack_quorum and len(regions) >= quorum.min_regions


def _named(slots: Sequence[KnownNode | None]) -> str:
    return ", ".join("nobody" if one is None else one.node for one in slots)
