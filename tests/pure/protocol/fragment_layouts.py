"""Clusters and fragments in one line: a letter for a node's region, a sign for its state.

`a` is up, `a-` is down, `a*` takes nothing new, `ax` has its disk given up. Nodes before the
bar are members of the fragment, nodes behind it are not: `aabx | bcc`.
"""

import attrs

from geolog.protocol.fragment_placement import NodesSeen
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.quorum import QuorumConfig
from topology.stream_policy import DEFAULT_LOCATION, PlacementPlace, PlacementTerms

_STATES = {
    "-": NodeUse.DOWN,
    "*": NodeUse.READONLY,
    "x": NodeUse.DOWN,
    "": NodeUse.WRITABLE,
}


@attrs.frozen
class Layout:
    """A cluster, and a closed ledger of one fragment in it."""

    seen: NodesSeen
    record: LedgerRecord

    @property
    def fragment(self) -> Fragment:
        return self.record.fragments[0]

    def regions_after(self, changes: dict[int, InstanceId]) -> str:
        """The region of each slot after these changes."""
        ring: list[str] = [member.instance for member in self.fragment.ensemble]
        for slot, instance in changes.items():
            ring[slot] = instance
        assert len(set(ring)) == len(ring)
        return "".join(self.seen.members.location_of(node).region for node in ring)


def layout(
    text: str,
    *,
    ack: int,
    min_regions: int = 2,
    write: int | None = None,
    forbidden: str = "",
    terms: PlacementTerms | None = None,
) -> Layout:
    """Parse such a line. The racks of a region alternate: 1, 2, 1, 2."""
    inside, _, outside = text.replace(" ", "").partition("|")
    members: list[Member] = []
    nodes: list[KnownNode] = []
    replaced: set[str] = set()
    for is_member, letters in ((True, inside), (False, outside)):
        for region, sign in _read(letters):
            count = sum(one.location.region == region for one in nodes)
            location = Location(region, f"r{1 + count % 2}")
            instance = InstanceId(f"{region}{count}")
            nodes.append(
                KnownNode(node=instance, location=location, state=_STATES[sign], free_bytes=1)
            )
            if sign == "x":
                replaced.add(instance)
            if is_member:
                members.append(Member(instance, f"node-{instance}", location))
    quorum = QuorumConfig(
        ensemble_size=len(members),
        write_quorum=write or len(members),
        ack_quorum=ack,
        min_regions=min_regions,
    )
    record = LedgerRecord(
        ledger=LedgerId(1),
        state=LedgerState.CLOSED,
        epoch=Epoch(1),
        quorum=quorum,
        fragments=(Fragment(EntryId(0), tuple(members)),),
        last_entry=EntryId(9),
        placement=terms or PlacementTerms(),
    )
    cluster = Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), nodes)
    place = PlacementPlace(forbidden_regions=frozenset(forbidden))
    return Layout(NodesSeen(cluster, frozenset(replaced), place), record)


def _read(letters: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for letter in letters:
        if letter in _STATES:
            region, _ = found.pop()
            found.append((region, letter))
        else:
            found.append((letter, ""))
    return found
