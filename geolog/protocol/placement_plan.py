"""Plans how to bring a fragment back to its policy with as few changed slots as possible.

Theory of operation. Some members leave in any case: those whose disks were given up and, if the
caller asks for it, those that are down or in a forbidden region. The others count as placed.
The policy looks for the fewest changes that make the ring STRICT. If that is impossible and the
ring is worse than SOFT, it looks for SOFT. If not all leaving members can go, as many go, slot
by slot, as leave the ring no worse. A plan never gives a worse placement than the current one.
If the stream's promise asks for more than STRICT, a plan that keeps the promise is tried first.

The answer is the same for two fragments whose members have equal locations and states. The
planner uses these to remember which fragments cannot be mended: in a cluster that has lost a
region, most of them cannot.

Rules: PROTOCOL P7.
"""

import random
from collections.abc import Collection, Mapping, Sequence

import attrs

from geolog.protocol.fragment_placement import MemberState, NodesSeen, judge_fragment
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, NodeUse
from topology.placement import adherence_of
from topology.placement_statistics import CountedPolicy, PlacementStatistics
from topology.policy import PlacementPolicy, PlacementRequest
from topology.promise import policy_keeping
from topology.quorum import AckRule, QuorumConfig
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence, rank_of

_UNDECIDED = "undecided"

_SHAPES_MAX = 10_000
"""Maximum number of fragment shapes whose outcome is remembered."""


@attrs.frozen(kw_only=True)
class RepairAims:
    """Members that leave, besides those whose disks were given up."""

    replaces_down: bool = False
    """Replace nodes that are down: they do not come back."""
    leaves_forbidden: bool = False
    """Move members out of forbidden regions."""


@attrs.frozen
class FragmentPlan:
    """New nodes by slot, the resulting adherence, and the obstacle to a better plan."""

    changes: Mapping[int, InstanceId]
    before: Adherence
    """Adherence without the leaving members."""
    after: Adherence
    obstacle: str = ""
    placed: Adherence = Adherence.FAIL
    """Adherence as placed: with the leaving members, except those whose disks are lost."""


@attrs.frozen
class _Shape:
    """Everything that a plan depends on, except chance."""

    policy: PlacementPolicy
    quorum: QuorumConfig
    slots: tuple[tuple[Location, MemberState, bool], ...]


@attrs.define
class PlacementPlanner:
    """Plans repairs for the fragments of a cluster as it was seen at one moment."""

    seen: NodesSeen
    aims: RepairAims = attrs.field(factory=RepairAims)
    now_s: float = 0.0
    _counted: dict[PlacementPolicy, CountedPolicy] = attrs.field(factory=dict, init=False)
    _hopeless: dict[_Shape, FragmentPlan] = attrs.field(factory=dict, init=False)
    _mendable: dict[_Shape, bool] = attrs.field(factory=dict, init=False)

    def plan(
        self,
        record: LedgerRecord,
        index: int,
        *,
        survive: str = "",
        refusing: Collection[InstanceId] = (),
    ) -> FragmentPlan:
        """Plan the fewest changes of one fragment; the same plan each time for the same nodes.

        survive: the promise of the ledger's stream.
        refusing: nodes that take nothing of this ledger, whatever else they take.
        """
        fragment, policy = record.fragments[index], self.seen.policy_of(record)
        keeping = policy_keeping(policy, survive)
        shape = self._shape_of(keeping, record.quorum, fragment)
        known = self._hopeless.get(shape)
        if known is not None:
            return known
        request = self._request(record.quorum, fragment)
        request = attrs.evolve(request, exclude=request.exclude.union(refusing))
        members = self._members_for(fragment)

        def found_by(asked: PlacementPolicy) -> FragmentPlan:
            rng = random.Random(f"{record.ledger}/{index}")
            counted = self._counted.setdefault(asked, CountedPolicy(asked))
            return _Search(counted, members, request, fragment).run(rng)

        plan = found_by(keeping)
        if keeping != policy and plan.after is not Adherence.STRICT:
            plan = _without_promise(found_by(policy), plan.obstacle, survive)
        placed = judge_fragment(self.seen, record, fragment).placed
        plan = attrs.evolve(plan, placed=placed)
        if not (plan.changes or refusing):
            if len(self._hopeless) >= _SHAPES_MAX:
                self._hopeless.clear()
            self._hopeless[shape] = plan
        return plan

    def statistics(self) -> PlacementStatistics:
        """Counts of policy searches and their outcomes; of equal fragments only the first."""
        return PlacementStatistics.total([one.statistics() for one in self._counted.values()])

    def is_mendable(self, record: LedgerRecord, index: int, survive: str = "") -> bool:
        """Whether a plan would change anything. Computed once for all equal fragments."""
        policy = policy_keeping(self.seen.policy_of(record), survive)
        shape = self._shape_of(policy, record.quorum, record.fragments[index])
        if shape not in self._mendable:
            if len(self._mendable) >= _SHAPES_MAX:
                self._mendable.clear()
            plan = self.plan(record, index, survive=survive)
            self._mendable[shape] = bool(plan.changes)
        return self._mendable[shape]

    def is_leaving(self, fragment: Fragment, slot: int) -> bool:
        """Whether the member of a slot leaves in any case."""
        member = fragment.ensemble[slot]
        match self.seen.state_of(member.instance):
            case MemberState.REPLACED:
                return True
            case MemberState.DOWN if self.aims.replaces_down:
                return True
            case _:
                return self.aims.leaves_forbidden and self.seen.is_forbidden(member)

    def _leaving(self, fragment: Fragment) -> frozenset[str]:
        return frozenset(
            member.instance
            for slot, member in enumerate(fragment.ensemble)
            if self.is_leaving(fragment, slot)
        )

    def _shape_of(
        self, policy: PlacementPolicy, quorum: QuorumConfig, fragment: Fragment
    ) -> _Shape:
        located = self.seen.members.location_of
        slots = tuple(
            (
                located(member.instance),
                self.seen.state_of(member.instance),
                self.is_leaving(fragment, slot),
            )
            for slot, member in enumerate(fragment.ensemble)
        )
        return _Shape(policy, quorum, slots)

    def _members_for(self, fragment: Fragment) -> Membership:
        """The cluster with the staying members writable and the leaving ones down."""
        members, leaving = self.seen.members, self._leaving(fragment)
        changed = []
        for member in fragment.ensemble:
            known = members.members.get(member.instance) or KnownNode(
                node=member.instance, location=member.location, state=NodeUse.DOWN
            )
            state = NodeUse.DOWN if member.instance in leaving else NodeUse.WRITABLE
            changed.append(attrs.evolve(known, state=state))
        return members.with_members(changed)

    def _request(self, quorum: QuorumConfig, fragment: Fragment) -> PlacementRequest:
        """Let members that stay but take nothing new keep their slots or give them away."""
        fixed = [
            member.instance
            for member in fragment.ensemble
            if self.seen.state_of(member.instance) is not MemberState.UP
        ]
        return PlacementRequest(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            exclude=self.seen.unplaceable.union(fixed),
            leaving=self._leaving(fragment),
            now_s=self.now_s,
            wanted=Adherence.STRICT,
        )


@attrs.define
class _Search:
    """Searches for the plan of one fragment."""

    _policy: PlacementPolicy
    _members: Membership
    _request: PlacementRequest
    _fragment: Fragment
    _obstacle: str = attrs.field(default="", init=False)

    def run(self, rng: random.Random) -> FragmentPlan:
        ring: list[str] = [member.instance for member in self._fragment.ensemble]
        before = self._judge(ring)
        found = self._repaired(ring, before, rng)
        if found is None:
            found = self._without_some(ring, rng)
        changes = {
            slot: InstanceId(node) for slot, node in enumerate(found) if node != ring[slot]
        }
        return FragmentPlan(changes, before, self._judge(found), self._obstacle)

    def _judge(self, ring: Sequence[str]) -> Adherence:
        request = self._request
        return self._policy.adherence(
            self._members, ring, request.write_quorum, request.ack_quorum
        )

    def _repaired(
        self, ring: Sequence[str], before: Adherence, rng: random.Random
    ) -> Sequence[str] | None:
        """Replace all leaving members at the best adherence, or return None if impossible."""
        for wanted in (Adherence.STRICT, Adherence.SOFT):
            if not self._request.leaving and rank_of(before) >= rank_of(wanted):
                return ring
            request = attrs.evolve(self._request, wanted=wanted)
            try:
                found = self._policy.repair(self._members, request, ring, rng)
            except NotEnoughNodesError as error:
                self._obstacle = str(error)
                if isinstance(error, PlacementUndecidedError):
                    self._obstacle = f"{_UNDECIDED}: {error}"
                continue
            is_found = bool(found.nodes) and not self._request.leaving.intersection(found.nodes)
            if is_found and rank_of(found.adherence) >= rank_of(before):
                if found.adherence is Adherence.STRICT:
                    self._obstacle = ""
                return found.nodes
            self._obstacle = self._obstacle or (
                f"the nodes that are up and allowed form no {wanted.value} ensemble"
                if is_found or not self._request.leaving
                else "the nodes that are up and allowed cannot fill all slots of a"
                f" {wanted.value} ensemble"
            )
        return None

    def _without_some(self, ring: Sequence[str], rng: random.Random) -> Sequence[str]:
        """Replace as many leaving members as possible without making the ring worse."""
        found = list(ring)
        for slot, node in enumerate(ring):
            if node not in self._request.leaving:
                continue
            try:
                other = self._policy.replace_node(
                    self._members, self._request, found, node, rng
                ).node
            except NotEnoughNodesError as error:
                self._obstacle = str(error)
                continue
            tried = [*found[:slot], other, *found[slot + 1 :]]
            if rank_of(self._judge(tried)) >= rank_of(self._judge(found)):
                found = tried
        return found


def _without_promise(plan: FragmentPlan, obstacle: str, survive: str) -> FragmentPlan:
    """The best plan without the promise, where the promise cannot be kept."""
    if not obstacle.startswith(_UNDECIDED):
        obstacle = f"the nodes that are up and allowed form no ensemble that survives {survive}"
    return attrs.evolve(plan, obstacle=plan.obstacle or obstacle)


def keeps_ack_sets(
    quorum: QuorumConfig, before: Collection[str], after: Collection[str]
) -> bool:
    """Whether entries stay as durable as the quorums say; regions are given slot by slot.

    A fragment that had no ack sets before may be changed in any case.
    """
    is_worse = adherence_of(quorum, list(after)) is Adherence.FAIL
    return not is_worse or adherence_of(quorum, list(before)) is Adherence.FAIL


def keeps_each_ack_set(
    quorum: QuorumConfig, before: Sequence[str], after: Sequence[str], complete: int
) -> bool:
    """Whether each entry keeps an ack set when slots change regions.

    `before` and `after` give the region of each slot. `complete` is a mask of the slots that
    have all of their entries; the others may lack some. Two copies in two regions stop being an
    ack set of two regions when one moves into the other's region.
    """
    if quorum.min_regions == 1:
        return True  # An ack set by count alone stays one, wherever its copies are.
    was, will_be = AckRule(quorum, before), AckRule(quorum, after)
    everybody = (1 << len(before)) - 1
    return all(
        will_be.is_ack(entry, complete) or not was.is_ack(entry, everybody)
        for entry in range(len(before))
    )
