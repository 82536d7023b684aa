"""Describing the placement of streams, fragment by fragment, as values to print."""

from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.placement_seen import see_nodes
from geolog.admin.placement.placement_walk import PlacedSegment, PlacementWalk
from geolog.protocol.copying import final_extents
from geolog.protocol.fragment_placement import (
    FragmentVerdict,
    MemberState,
    NodesSeen,
    judge_fragment,
)
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.placement_plan import PlacementPlanner
from topology.ring.window_rule import Adherence


@attrs.frozen(kw_only=True)
class PlacedMember:
    """One slot of a fragment, and its member."""

    slot: int
    node_id: str
    instance: str
    region: str
    rack: str
    state: str
    """up, readonly, draining, down, or replaced (its disk was given up)."""
    is_forbidden: bool
    """Whether it is in a region where placement is forbidden."""


@attrs.frozen(kw_only=True)
class NodePlace:
    """A node that may hold fragments: its location and state."""

    node_id: str
    instance: str
    region: str
    rack: str
    state: str


@attrs.frozen(kw_only=True)
class FragmentPlacement:
    """The placement of one fragment, and how good it is."""

    stream: str
    partition: int
    segment: int
    ledger: int
    ledger_state: str
    fragment: int
    first_entry: int
    last_entry: int | None
    """None while the fragment is being written."""
    entries: int | None
    policy: str
    adherence: str
    """Adherence as placed: strict, soft or fail. Members that are down count; members whose
    disks were given up do not."""
    adherence_now: str
    """Adherence counting only the members that are up."""
    keeps_promise: bool
    """Whether it keeps its stream's promise (`survive`); true if there is none."""
    why: str
    """The problem in words; empty if there is none."""
    copies_missing: int
    """Slots whose copies are not available now: the node is down, or its disk was given up."""
    is_repairable: bool
    """Whether `geolog placement repair` can improve it now."""
    obstacle: str
    """The reason why it cannot, if it should."""
    members: list[PlacedMember]

    @property
    def is_good(self) -> bool:
        """Whether it needs no repair, and all its members are up."""
        return not (self.why or self.copies_missing)


@attrs.define
class PlacementTotals:
    """Totals of one stream, or of several."""

    segments: int = 0
    fragments: int = 0
    strict: int = 0
    soft: int = 0
    fail: int = 0
    disks_given_up: int = 0
    """Fragments that still name a disk that was given up."""
    promises_broken: int = 0
    """Fragments that do not keep their stream's promise."""
    copies_missing: int = 0
    repairable: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing needs repair."""
        return not (self.soft or self.fail or self.disks_given_up or self.promises_broken)

    def add(self, one: FragmentPlacement) -> None:
        """Count a fragment."""
        self.fragments += 1
        self.strict += one.adherence == Adherence.STRICT.value
        self.soft += one.adherence == Adherence.SOFT.value
        self.fail += one.adherence == Adherence.FAIL.value
        self.disks_given_up += any(
            member.state == MemberState.REPLACED.value for member in one.members
        )
        self.promises_broken += not one.keeps_promise
        self.copies_missing += one.copies_missing
        self.repairable += one.is_repairable


class PlacementLook:
    """Describes the fragments of a stream; `begin` reads the list of nodes."""

    def __init__(
        self, walk: PlacementWalk, seen: NodesSeen, node_ids: Mapping[str, str]
    ) -> None:
        self._walk = walk
        self._nodes = {
            instance: _place_of(seen, instance, node_id)
            for instance, node_id in node_ids.items()
        }
        self._planner = PlacementPlanner(seen)
        self.seen = seen
        self.totals = PlacementTotals()

    @classmethod
    async def begin(cls, access: ClusterAccess, target: str | None) -> "PlacementLook":
        """Begin with a stream, one partition of it (`NAME#P`), or all. NoSuchStreamError."""
        walk = await PlacementWalk.begin(access, target)
        seen = await see_nodes(access)
        return cls(walk, seen.nodes, seen.node_ids)

    @property
    def segments_count(self) -> int:
        """The number of segments listed."""
        return self._walk.segments_count

    async def next_fragments(self) -> list[FragmentPlacement] | None:
        """The fragments of the next few segments, in order; None after the last."""
        batch = await self._walk.next_batch()
        if batch is None:
            return None
        found = [one for segment in batch for one in self._of_segment(segment)]
        self.totals.segments += len(batch)
        for one in found:
            self.totals.add(one)
        return found

    def policy_outcomes(self) -> dict[str, dict[str, int]]:
        """Counts of the policies' judgements and repairs, by outcome."""
        outcomes = self._planner.statistics().outcomes
        return {name: dict(found) for name, found in outcomes.items()}

    def regions(self) -> dict[str, list[NodePlace]]:
        """The nodes of each region, ordered by rack; nodes given up are last."""
        found: dict[str, list[NodePlace]] = {}
        for one in sorted(self._nodes.values(), key=_in_a_row):
            found.setdefault(one.region, []).append(one)
        return dict(sorted(found.items()))

    def _of_segment(self, placed: PlacedSegment) -> Iterator[FragmentPlacement]:
        record = placed.ledger
        ends = {extent.index: extent.last for extent in final_extents(record)}
        for index, fragment in enumerate(record.fragments):
            verdict = judge_fragment(self.seen, record, fragment, placed.survive)
            obstacle, is_repairable = self._hope(placed, index, verdict, is_final=index in ends)
            last = ends.get(index)
            yield FragmentPlacement(
                stream=str(placed.partition.stream),
                partition=placed.partition.number,
                segment=placed.segment.segment,
                ledger=record.ledger,
                ledger_state=record.state.value,
                fragment=index,
                first_entry=fragment.first_entry,
                last_entry=last,
                entries=None if last is None else last - fragment.first_entry + 1,
                policy=record.placement.name,
                adherence=verdict.placed.value,
                adherence_now=verdict.now.value,
                keeps_promise=not verdict.broken,
                why=verdict.why,
                copies_missing=_missing_count(verdict),
                is_repairable=is_repairable,
                obstacle=obstacle,
                members=self._members_of(record, index, verdict),
            )

    def _hope(
        self, placed: PlacedSegment, index: int, verdict: FragmentVerdict, *, is_final: bool
    ) -> tuple[str, bool]:
        """The obstacle to a repair, and whether a repair is possible now."""
        if verdict.is_good:
            return "", False
        if not is_final:
            return open_obstacle(placed.ledger), False
        plan = self._planner.plan(placed.ledger, index, survive=placed.survive)
        return plan.obstacle, bool(plan.changes)

    def _members_of(
        self, record: LedgerRecord, index: int, verdict: FragmentVerdict
    ) -> list[PlacedMember]:
        return [
            PlacedMember(
                slot=slot,
                node_id=member.node_id,
                instance=member.instance,
                region=member.location.region,
                rack=member.location.rack,
                state=state.value,
                is_forbidden=self.seen.is_forbidden(member),
            )
            for slot, (member, state) in enumerate(
                zip(record.fragments[index].ensemble, verdict.states, strict=True)
            )
        ]


def open_obstacle(record: LedgerRecord) -> str:
    """The reason why the last fragment of a ledger that is not CLOSED is left as it is."""
    if record.state is LedgerState.IN_RECOVERY:
        return (
            "it is being recovered, which will close it; if nobody recovers it, run `geolog"
            f" ledger recover {record.ledger}`"
        )
    return (
        "it is being written: its writer replaces members as needed, and chooses nodes again"
        " for the next segment"
    )


def _missing_count(verdict: FragmentVerdict) -> int:
    states = Counter(verdict.states)
    return states[MemberState.DOWN] + states[MemberState.REPLACED]


def _place_of(seen: NodesSeen, instance: str, node_id: str) -> NodePlace:
    location = seen.members.location_of(instance)
    return NodePlace(
        node_id=node_id,
        instance=instance,
        region=location.region,
        rack=location.rack,
        state=seen.state_of(InstanceId(instance)).value,
    )


def _in_a_row(place: NodePlace) -> tuple[bool, str, str, str]:
    is_replaced = place.state == MemberState.REPLACED.value
    return is_replaced, place.rack, place.node_id, place.instance
