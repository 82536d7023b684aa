"""The cluster's nodes and their states: one snapshot, a value; other sets derive from it.

A change takes the sets of nodes registered as writable and as read-only, and returns the next
snapshot and the nodes that died. A departed node keeps its location here, so that a replacement
can be sought near it. For `stabilize_s` it stays a candidate of last resort: a rolling restart
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
    """Allowed use of a node."""

    WRITABLE = "writable"
    READONLY = "readonly"
    DRAINING = "draining"
    DOWN = "down"
    NEVER_REGISTERED = "never_registered"


_UP = frozenset({NodeUse.WRITABLE, NodeUse.READONLY, NodeUse.DRAINING})


@attrs.frozen(kw_only=True)
class MembershipConfig:
    """How long departed nodes count as candidates, and which nodes flap. Always in seconds."""

    default_location: Location
    """Location of nodes whose location is unknown."""
    stabilize_s: float = 0.0
    """For this long after it left, a node may still be chosen when too few others are up."""
    departures_max: int = 3
    """Hold back a node that left more than this many times within `flapping_s`."""
    flapping_s: float = 600.0
    """Window in which departures are counted, and after which a held-back node is free
    again."""


@attrs.frozen(kw_only=True)
class KnownNode:
    """One node: its location, its state, and its last few departures."""

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
        """Nodes eligible for new ensembles."""
        return Tree.of(
            _tree_node(one) for one in self.members.values() if one.state is NodeUse.WRITABLE
        )

    @cached_property
    def up(self) -> Tree:
        """Registered nodes, including read-only ones."""
        return Tree.of(_tree_node(one) for one in self.members.values() if one.is_up)

    def last_resort(self, now_s: float) -> Tree:
        """Nodes that left less than `stabilize_s` ago."""
        return Tree.of(
            _tree_node(one)
            for one in self.members.values()
            if one.state is NodeUse.DOWN
            and one.left_s
            and now_s - one.left_s[-1] < self.config.stabilize_s
        )

    @cached_property
    def _left_often(self) -> tuple[KnownNode, ...]:
        """Nodes that may be held back: mostly none, so checking for each ensemble is cheap."""
        return tuple(
            one
            for one in self.members.values()
            if one.state is NodeUse.WRITABLE and len(one.left_s) > self.config.departures_max
        )

    def held_back(self, now_s: float) -> frozenset[str]:
        """Writable nodes that left too often recently: not for new ensembles yet."""
        return frozenset(
            one.node
            for one in self._left_often
            if sum(now_s - left_s < self.config.flapping_s for left_s in one.left_s)
            > self.config.departures_max
        )

    def location_of(self, node: str) -> Location:
        """Its location, or its last one if it left; the default location if unknown."""
        found = self.members.get(node)
        return self.config.default_location if found is None else found.location

    def count_of(self, state: NodeUse) -> int:
        """How many nodes are in this state."""
        return sum(node.state is state for node in self.members.values())

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
        """The snapshot after these nodes (and no others) registered, and the nodes that died.

        `locations` are those known now; other nodes keep theirs.
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
        """The snapshot without nodes that left before that time."""
        kept = {
            node: one
            for node, one in self.members.items()
            if one.state is not NodeUse.DOWN or (one.left_s and one.left_s[-1] >= before_s)
        }
        return self if len(kept) == len(self.members) else Membership(self.config, kept)

    def relocated(self, locations: Mapping[str, Location]) -> "Membership":
        """The snapshot with these locations, new or changed, in effect at once."""
        members = dict(self.members)
        for node, location in locations.items():
            if node in members:
                members[node] = attrs.evolve(members[node], location=location)
        return Membership(self.config, members)

    def only_in(self, region: str) -> "Membership":
        """The snapshot in which the nodes of other regions never registered."""
        if region not in self._by_region:
            self._by_region[region] = Membership(
                self.config,
                {
                    name: one
                    if one.location.region == region
                    else attrs.evolve(one, state=NodeUse.NEVER_REGISTERED)
                    for name, one in self.members.items()
                },
            )
        return self._by_region[region]

    @cached_property
    def _by_region(self) -> dict[str, "Membership"]:
        """Snapshots made by `only_in`: thousands of ledgers are judged by the same one."""
        return {}

    def draining(self, nodes: Collection[str]) -> "Membership":
        """The snapshot with these writable nodes draining: read from, not placed on."""
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
        """The snapshot with these nodes as given; its tree is changed, not rebuilt."""
        found = Membership(self.config, {**self.members, **{one.node: one for one in changed}})
        tree = self.writable
        for one in changed:
            before = self.members.get(one.node)
            if before is not None and before.state is NodeUse.WRITABLE:
                tree = tree.without(_tree_node(before))
            if one.state is NodeUse.WRITABLE:
                tree = tree.with_node(_tree_node(one))
        vars(found)["writable"] = tree  # As the cached property would store it.
        return found

    def restored(self, nodes: Collection[str]) -> "Membership":
        """The snapshot with these draining nodes writable again."""
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
        """The snapshot with the free space that nodes reported."""
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
            state = NodeUse.DRAINING  # Registration does not end draining: not its decision.
        return attrs.evolve(before, state=state, location=location or before.location)

    def _left(self, member: KnownNode, now_s: float) -> KnownNode:
        # One more than counts is enough to know that it flaps.
        left_s = (*member.left_s, now_s)[-(self.config.departures_max + 1) :]
        return attrs.evolve(member, state=NodeUse.DOWN, left_s=left_s)


def _tree_node(member: KnownNode) -> TreeNode:
    return TreeNode(member.node, member.location, member.free_bytes)
