"""Who is in the cluster, and how: one snapshot, a value; all other sets are derived from it.

A change takes the sets of nodes that registered as writable and as read-only, and answers the
next snapshot and who died. A departed node keeps its place here, so that a replacement can be
sought near it, and for `stabilize_s` it stays a candidate of last resort: a rolling restart
does not collapse racks. A node that leaves too often within a time is held back from new
ensembles until it has stayed for a while. The clock is an argument.

Rules: PROTOCOL P10.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

import attrs

from topology.location import Location
from topology.tree import Tree, TreeNode


class NodeUse(enum.Enum):
    """What a node may be used for now."""

    WRITABLE = "writable"
    READONLY = "readonly"
    DRAINING = "draining"
    DOWN = "down"
    NEVER_REGISTERED = "never_registered"


_UP = frozenset({NodeUse.WRITABLE, NodeUse.READONLY, NodeUse.DRAINING})


@attrs.frozen(kw_only=True)
class MembershipConfig:
    """How long the departed count as candidates, and who flaps. Seconds, always."""

    default_location: Location
    """Where nodes stand whose location is not known."""
    stabilize_s: float = 0.0
    """So long after it left a node may still be placed on when too few others are up."""
    departures_max: int = 3
    """A node that left more often than so within `flapping_s` is held back."""
    flapping_s: float = 600.0
    """The time that departures are counted for, and after which a held node is free again."""


@attrs.frozen(kw_only=True)
class KnownNode:
    """One node: where it stands, its state, and when it left (the last few times)."""

    node: str
    location: Location
    state: NodeUse
    free_bytes: int = 0
    left_s: tuple[float, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether it is registered, for writing or for reading."""
        return self.state in _UP


@attrs.frozen(slots=False)
class Membership:
    """A snapshot of all nodes that are or were known."""

    config: MembershipConfig
    members: Mapping[str, KnownNode]

    @classmethod
    def of(cls, config: MembershipConfig, members: Iterable[KnownNode]) -> "Membership":
        """A first snapshot."""
        return cls(config, {member.node: member for member in members})

    @cached_property
    def writable(self) -> Tree:
        """The nodes that new ensembles may stand on."""
        return Tree.of(
            _tree_node(one) for one in self.members.values() if one.state is NodeUse.WRITABLE
        )

    @cached_property
    def up(self) -> Tree:
        """The nodes that are registered, also those that only read."""
        return Tree.of(_tree_node(one) for one in self.members.values() if one.is_up)

    def last_resort(self, now_s: float) -> Tree:
        """Those that left less than `stabilize_s` ago."""
        return Tree.of(
            _tree_node(one)
            for one in self.members.values()
            if one.state is NodeUse.DOWN
            and one.left_s
            and now_s - one.left_s[-1] < self.config.stabilize_s
        )

    @cached_property
    def _left_often(self) -> tuple[KnownNode, ...]:
        """Those that may be held back: mostly none, so asking for each ensemble is cheap."""
        return tuple(
            one
            for one in self.members.values()
            if one.state is NodeUse.WRITABLE and len(one.left_s) > self.config.departures_max
        )

    def held_back(self, now_s: float) -> frozenset[str]:
        """Writable nodes that left too often of late: not for new ensembles yet."""
        return frozenset(
            one.node
            for one in self._left_often
            if sum(now_s - left_s < self.config.flapping_s for left_s in one.left_s)
            > self.config.departures_max
        )

    def location_of(self, node: str) -> Location:
        """Where it stands, or stood when it left; the default location if that is unknown."""
        found = self.members.get(node)
        return self.config.default_location if found is None else found.location

    def state_of(self, node: str) -> NodeUse:
        """Its state; a node never heard of never registered."""
        found = self.members.get(node)
        return NodeUse.NEVER_REGISTERED if found is None else found.state

    def changed(
        self,
        *,
        writable: Collection[str],
        readonly: Collection[str],
        locations: Mapping[str, Location],
        now_s: float,
    ) -> tuple["Membership", frozenset[str]]:
        """The snapshot after these registered (and no others), and who died by that.

        `locations` are those that are known now; others keep the place they had.
        """
        members = dict(self.members)
        dead = set()
        for node in sorted({*self.members, *writable, *readonly}):
            before = members.get(node)
            if node in writable or node in readonly:
                state = NodeUse.WRITABLE if node in writable else NodeUse.READONLY
                members[node] = self._joined(node, before, state, locations.get(node))
            elif before is not None and before.is_up:
                dead.add(node)
                members[node] = self._left(before, now_s)
        return Membership(self.config, members), frozenset(dead)

    def without_departed(self, before_s: float) -> "Membership":
        """The snapshot without those that left before that."""
        kept = {
            node: one
            for node, one in self.members.items()
            if one.state is not NodeUse.DOWN or (one.left_s and one.left_s[-1] >= before_s)
        }
        return self if len(kept) == len(self.members) else Membership(self.config, kept)

    def relocated(self, locations: Mapping[str, Location]) -> "Membership":
        """The snapshot after these locations became known, or changed: at once."""
        members = dict(self.members)
        for node, location in locations.items():
            if node in members:
                members[node] = attrs.evolve(members[node], location=location)
        return Membership(self.config, members)

    def draining(self, nodes: Collection[str]) -> "Membership":
        """The snapshot with these of the writable nodes draining: read, not placed on."""
        return Membership(
            self.config,
            {
                name: attrs.evolve(one, state=NodeUse.DRAINING)
                if name in nodes and one.state is NodeUse.WRITABLE
                else one
                for name, one in self.members.items()
            },
        )

    def with_members(self, changed: Collection[KnownNode]) -> "Membership":
        """The snapshot with these as they are given; its tree is changed, not built anew."""
        found = Membership(self.config, {**self.members, **{one.node: one for one in changed}})
        tree = self.writable
        for one in changed:
            before = self.members.get(one.node)
            if before is not None and before.state is NodeUse.WRITABLE:
                tree = tree.without(_tree_node(before))
            if one.state is NodeUse.WRITABLE:
                tree = tree.with_node(_tree_node(one))
        vars(found)["writable"] = tree  # As the cached property would keep it.
        return found

    def restored(self, nodes: Collection[str]) -> "Membership":
        """The snapshot with these of the draining nodes writable again."""
        return Membership(
            self.config,
            {
                name: attrs.evolve(one, state=NodeUse.WRITABLE)
                if name in nodes and one.state is NodeUse.DRAINING
                else one
                for name, one in self.members.items()
            },
        )

    def with_free_bytes(self, free_bytes: Mapping[str, int]) -> "Membership":
        """The snapshot with the free space that nodes told."""
        return Membership(
            self.config,
            {
                name: attrs.evolve(one, free_bytes=free_bytes.get(name, one.free_bytes))
                for name, one in self.members.items()
            },
        )

    def _joined(
        self, node: str, before: KnownNode | None, state: NodeUse, location: Location | None
    ) -> KnownNode:
        if before is None:
            place = location or self.config.default_location
            return KnownNode(node=node, location=place, state=state)
        if before.state is NodeUse.DRAINING and state is NodeUse.WRITABLE:
            state = NodeUse.DRAINING  # It registers as it did; draining is not its decision.
        return attrs.evolve(before, state=state, location=location or before.location)

    def _left(self, member: KnownNode, now_s: float) -> KnownNode:
        # One more than counts is enough to know that it flaps.
        left_s = (*member.left_s, now_s)[-(self.config.departures_max + 1) :]
        return attrs.evolve(member, state=NodeUse.DOWN, left_s=left_s)


def _tree_node(member: KnownNode) -> TreeNode:
    return TreeNode(member.node, member.location, member.free_bytes)
