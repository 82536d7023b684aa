"""Judges how a fragment is placed: where its members are, their state, and the adherence.

There are two judgements. *Placed* counts every member except those whose disk was given up,
because a node that is down may come back with its copies. *Now* counts only members that are
up. Nodes are told apart by instance: another disk under the same node id is another node.
"""

import enum
from collections import Counter
from collections.abc import Collection
from functools import cached_property, lru_cache

import attrs

from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, Member
from topology.location import Location
from topology.membership import KnownNode, Membership, NodeUse
from topology.policy import PlacementPolicy
from topology.promise import promise_broken
from topology.ring.window_rule import Adherence
from topology.stream_policy import ANYWHERE, PlacementPlace, policy_of
from topology.survive import Loss

_policy_of = lru_cache(maxsize=64)(policy_of)


class MemberState(enum.Enum):
    """State of a fragment's member."""

    UP = "up"
    READ_ONLY = "readonly"
    DRAINING = "draining"
    DOWN = "down"
    REPLACED = "replaced"
    """Its disk was given up for good; other members must supply its copies."""


_STATE_OF = {
    NodeUse.WRITABLE: MemberState.UP,
    NodeUse.READONLY: MemberState.READ_ONLY,
    NodeUse.DRAINING: MemberState.DRAINING,
    NodeUse.DOWN: MemberState.DOWN,
    NodeUse.NEVER_REGISTERED: MemberState.DOWN,
}


@attrs.frozen(slots=False)
class NodesSeen:
    """The nodes of a cluster at one moment, by instance, including replaced ones."""

    members: Membership
    replaced: frozenset[str] = frozenset()
    """Instances whose disks were given up."""
    place: PlacementPlace = ANYWHERE
    """Where the caller is, and the regions in which nothing new is placed."""

    def state_of(self, instance: InstanceId) -> MemberState:
        """The member's state; an instance that is no longer known counts as down."""
        if instance in self.replaced:
            return MemberState.REPLACED
        return _STATE_OF[self.members.state_of(instance)]

    def place_of(self, member: Member) -> Location:
        """Where the member is now, or its last known location."""
        known = self.members.members.get(member.instance)
        return member.location if known is None else known.location

    def region_of(self, member: Member) -> str:
        """The region that the member is in."""
        return self.place_of(member).region

    def is_forbidden(self, member: Member) -> bool:
        """Whether the member is in a region in which nothing new is placed."""
        return self.region_of(member) in self.place.forbidden_regions

    @cached_property
    def unplaceable(self) -> frozenset[str]:
        """The nodes in forbidden regions."""
        return self.place.excluded(self.members)

    @cached_property
    def placed(self) -> Membership:
        """The cluster with every node that counts as placed writable, and all others down."""
        return self._counting({*self.members.members} - self.replaced)

    @cached_property
    def now(self) -> Membership:
        """The cluster with every node that is up writable, and all others down."""
        up = {node for node, one in self.members.members.items() if one.is_up}
        return self._counting(up - self.replaced)

    def policy_of(self, record: LedgerRecord) -> PlacementPolicy:
        """The policy that the ledger was placed by, applied to this cluster."""
        return _policy_of(record.placement, record.quorum, self.place)

    def _counting(self, counted: Collection[str]) -> Membership:
        return Membership.of(
            self.members.config,
            [_as_counted(one, node in counted) for node, one in self.members.members.items()],
        )


def _as_counted(node: KnownNode, is_counted: bool) -> KnownNode:  # noqa: FBT001 - One of two states.
    return attrs.evolve(node, state=NodeUse.WRITABLE if is_counted else NodeUse.DOWN)


@attrs.frozen
class FragmentVerdict:
    """Verdict on one fragment's placement."""

    placed: Adherence
    """Adherence as placed, counting nodes that are down."""
    now: Adherence
    """Adherence of the members that are up alone."""
    states: tuple[MemberState, ...]
    """State of each member, in ring order."""
    why: str
    """Problems, worst first; empty if there are none."""
    broken: str = ""
    """A promised loss that the fragment would not survive; empty if there is none."""

    @property
    def is_good(self) -> bool:
        """Whether it is STRICT, keeps the stream's promise, and no disk was given up."""
        return (
            self.placed is Adherence.STRICT
            and not self.broken
            and MemberState.REPLACED not in self.states
        )


def judge_fragment(
    seen: NodesSeen, record: LedgerRecord, fragment: Fragment, survive: str = ""
) -> FragmentVerdict:
    """Judge how a fragment is placed; `survive` is the promise of its stream."""
    policy = seen.policy_of(record)
    names = [member.instance for member in fragment.ensemble]
    write, ack = record.quorum.write_quorum, record.quorum.ack_quorum
    placed = policy.adherence(seen.placed, names, write, ack)
    states = tuple(seen.state_of(name) for name in names)
    broken = _broken(seen, record, fragment, survive)
    whys = []
    if placed is not Adherence.STRICT or MemberState.REPLACED in states:
        whys.append(_why(seen, record, fragment, states))
    if broken:
        whys.append(f"{broken}, which breaks the promise to survive {survive!r}")
    now = policy.adherence(seen.now, names, write, ack)
    return FragmentVerdict(placed, now, states, "; ".join(whys), broken)


def _broken(seen: NodesSeen, record: LedgerRecord, fragment: Fragment, survive: str) -> str:
    if not survive:
        return ""
    places = tuple(
        None if member.instance in seen.replaced else seen.place_of(member)
        for member in fragment.ensemble
    )
    return promise_broken(Loss.parse(survive), record.quorum, places) or ""


def _why(
    seen: NodesSeen,
    record: LedgerRecord,
    fragment: Fragment,
    states: Collection[MemberState],
) -> str:
    """Problems of a fragment, worst first."""
    whys = []
    gone = [
        member.node_id
        for member, state in zip(fragment.ensemble, states, strict=True)
        if state is MemberState.REPLACED
    ]
    if gone:
        whys.append(f"the disk of {' and '.join(gone)} was given up")
    regions = [seen.region_of(member) for member in fragment.ensemble]
    counted = sum(
        1 << slot for slot, state in enumerate(states) if state is not MemberState.REPLACED
    )
    rule = fragment.rule(record.quorum)
    if not rule.acks_all(counted):
        whys.append(f"it has no ack set ({record.quorum})")
    elif record.placement.region is None:  # Else all copies are in one region on purpose.
        needed = [
            region
            for region in sorted(set(regions))
            if not rule.acks_all(counted & ~_mask_of(regions, region))
        ]
        if needed:
            whys.append(f"losing region {' or '.join(needed)} leaves no ack set")
    if not whys:
        census = Counter(str(member.location) for member in fragment.ensemble)
        places = ", ".join(f"{place}: {census[place]}" for place in sorted(census))
        whys.append(f"its members are in {places}")
    return "; ".join(whys)


def _mask_of(regions: list[str], region: str) -> int:
    return sum(1 << slot for slot, one in enumerate(regions) if one == region)
