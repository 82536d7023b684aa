"""Judging a cluster: what is down, what that means for its streams, what more it can take."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import attrs

from geolog.client.streams.descriptions import HealthReport, PlacementHealth
from geolog.ledger.ledger_placement import adherence_as_recorded
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.replaced_nodes import ReplacedNode
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.membership import Member, Membership, MembershipConfig, NodeState
from topology.policy import PlacementRequest
from topology.promise import promise_broken
from topology.quorum import QuorumConfig
from topology.ring_search import PlacementUndecidedError
from topology.stream_policy import (
    DEFAULT_LOCATION,
    REGION_AWARE_TERMS,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)
from topology.survive import Loss
from topology.window_rule import Adherence

_RoomKey = tuple[PlacementTerms, QuorumConfig, frozenset[str]]
"""What is placed, and which regions are lost."""

_MEMBERSHIP = MembershipConfig(default_location=DEFAULT_LOCATION)


@attrs.frozen
class StreamState:
    """What health needs to know of a stream: how it is placed, and its last ledger."""

    name: str
    quorum: QuorumConfig
    last_ledger: LedgerRecord | None
    placement: PlacementTerms = REGION_AWARE_TERMS
    survive: str = ""
    """What it was promised to survive; empty if it was given its quorums."""


@attrs.frozen(kw_only=True)
class ClusterState:
    """What health needs to know of a cluster."""

    known: Sequence[NodeRecord]
    live: Sequence[NodeRecord]
    """Those that answer."""
    unmoved: Sequence[ReplacedNode] = ()
    """Disks that were given up, and of which nothing says that their copies were moved."""
    forbidden_regions: frozenset[str] = frozenset()
    metadata: str = "connected"
    metadata_spare: int | None = None
    """Servers that the metadata store can lose with a majority left, None if that is not
    known. They are taken to stand in a region each, as they should."""


def judge(
    cluster: ClusterState,
    streams: Sequence[StreamState],
    placement: PlacementHealth,
) -> HealthReport:
    """Say whether all is well, and how many more regions may be lost."""
    rooms = _Rooms(cluster)
    reasons = [*_node_reasons(cluster, placement)]
    for stream in streams:
        reasons += _complaints(stream, cluster.live, rooms)
    placement_told = placement.told()
    advice = [] if placement_told is None else [placement_told]
    if not placement.is_good:
        reasons, advice = reasons + advice, []
    spare = _regions_spare(streams, cluster.live, rooms)
    if cluster.metadata_spare is not None:
        spare = min(spare, cluster.metadata_spare)
    regions = Counter(record.location.region for record in cluster.live)
    return HealthReport(
        is_healthy=not reasons,
        reasons=reasons,
        advice=advice,
        regions_spare=spare,
        nodes_live=len(cluster.live),
        nodes_known=len(cluster.known),
        regions=dict(sorted(regions.items())),
        streams=len(streams),
        placement=placement,
        metadata=cluster.metadata,
    )


def _node_reasons(cluster: ClusterState, placement: PlacementHealth) -> list[str]:
    """What is wrong with nodes."""
    up = {record.instance for record in cluster.live}
    reasons = [
        f"node {record.node_id} ({record.location}) is down"
        for record in cluster.known
        if record.instance not in up
    ]
    if not cluster.known:
        reasons.append("no storage node has joined the cluster, or it has another name")
    reasons += [
        f"node {record.node_id} ({record.location}) takes no new entries: it is"
        f" {record.state.value}"
        for record in cluster.live
        if not record.is_writable
    ]
    if placement.is_sample or placement.disks_given_up:
        # Where all ledgers were judged, and none names such a disk, nothing is left of it.
        reasons += [
            f"the disk of node {gone.node_id} ({gone.location}) was given up, and its copies"
            f" are not all moved: `geolog node replace {gone.node_id}` goes on"
            for gone in cluster.unmoved
        ]
    return reasons


class _Rooms:
    """Whether new ledgers can be placed when regions are lost; asked once for all alike."""

    def __init__(self, cluster: ClusterState) -> None:
        self._live = cluster.live
        self._place = PlacementPlace(forbidden_regions=cluster.forbidden_regions)
        self._known: dict[_RoomKey, bool] = {}
        self._undecided: set[_RoomKey] = set()

    def has_room(self, stream: StreamState, lost: frozenset[str] = frozenset()) -> bool:
        """Whether a new ledger of the stream can be placed on the nodes that are left."""
        key = (stream.placement, stream.quorum, lost)
        if key not in self._known:
            self._known[key] = self._can_place(stream, lost)
        return self._known[key]

    def is_undecided(self, stream: StreamState) -> bool:
        """Whether it is open if a new ledger could be placed better than was found, if any."""
        self.has_room(stream)
        return (stream.placement, stream.quorum, frozenset[str]()) in self._undecided

    def _members_without(self, lost: frozenset[str]) -> Membership:
        return Membership.of(
            _MEMBERSHIP,
            [
                Member(node=record.instance, location=record.location, state=NodeState.WRITABLE)
                for record in self._live
                if record.is_writable and record.location.region not in lost
            ],
        )

    def _can_place(self, stream: StreamState, lost: frozenset[str]) -> bool:
        members = self._members_without(lost)
        excluded = self._place.excluded(members)
        if stream.placement.policy is PolicyKind.LOCAL_NODE:
            return members.writable.count > len(excluded)  # It is where its writer comes.
        quorum = stream.quorum
        request = PlacementRequest(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            exclude=excluded,
        )
        policy = policy_of(stream.placement, quorum, self._place)
        try:
            placed = policy.new_ensemble(members, request, random.Random(0))
        except PlacementUndecidedError:
            self._undecided.add((stream.placement, quorum, lost))
            return False  # Not proven: a person should look.
        except (NotEnoughNodesError, InvalidArgumentError):
            return False
        if placed.is_undecided:
            self._undecided.add((stream.placement, quorum, lost))
        return True


def _complaints(stream: StreamState, live: Sequence[NodeRecord], rooms: _Rooms) -> list[str]:
    found = []
    if not rooms.has_room(stream):
        what = "no new ledger can be placed"
        if rooms.is_undecided(stream):
            what = "whether a new ledger can be placed is undecided: the search was cut off"
        found.append(f"stream {stream.name}: {what} ({stream.quorum})")
    ledger = stream.last_ledger
    if ledger is not None and ledger.state is not LedgerState.CLOSED:
        fragment = ledger.fragments[-1]
        adherence = adherence_as_recorded(ledger, fragment)
        if not _acks(ledger, fragment, live):
            found.append(f"stream {stream.name}: ledger {ledger.ledger} has no ack set up")
        elif adherence is not Adherence.STRICT:
            means = _what_soft_means(ledger, adherence)
            if rooms.is_undecided(stream):
                means += (
                    "; whether the nodes that are up make a strict one is undecided: the search"
                    " for it was cut off"
                )
            found.append(f"stream {stream.name}: {means}")
        elif broken := _broken(stream, ledger, fragment):
            found.append(
                f"stream {stream.name}: ledger {ledger.ledger} does not survive"
                f" {stream.survive!r}, as was promised: {broken}"
            )
    return found


def _broken(stream: StreamState, ledger: LedgerRecord, fragment: Fragment) -> str | None:
    """The loss that the stream was promised to survive, and this ensemble does not."""
    if not stream.survive:
        return None
    places = tuple(member.location for member in fragment.ensemble)
    return promise_broken(Loss.parse(stream.survive), ledger.quorum, places)


def _what_soft_means(ledger: LedgerRecord, adherence: Adherence) -> str:
    if ledger.placement.policy is PolicyKind.REGION_AWARE:
        return f"ledger {ledger.ledger} would not survive the loss of another region"
    policy = ledger.placement.policy.value
    return f"ledger {ledger.ledger} adheres to its policy {policy!r} as {adherence.value}"


def _regions_spare(
    streams: Sequence[StreamState], live: Sequence[NodeRecord], rooms: _Rooms
) -> int:
    """The largest n such that any n of the regions that are up may go."""
    regions = sorted({record.location.region for record in live})
    for count in range(1, len(regions) + 1):
        choices = itertools.combinations(regions, count)
        if not all(_can_lose(frozenset(lost), streams, live, rooms) for lost in choices):
            return count - 1
    return len(regions)


def _can_lose(
    lost: frozenset[str],
    streams: Sequence[StreamState],
    live: Sequence[NodeRecord],
    rooms: _Rooms,
) -> bool:
    left = [record for record in live if record.location.region not in lost]
    if not left:
        return False
    return all(
        rooms.has_room(stream, lost)
        and (
            stream.last_ledger is None
            or all(
                _acks(stream.last_ledger, fragment, left)
                for fragment in stream.last_ledger.fragments
            )
        )
        for stream in streams
    )


def _acks(ledger: LedgerRecord, fragment: Fragment, live: Sequence[NodeRecord]) -> bool:
    up: set[InstanceId] = {record.instance for record in live}
    mask = sum(
        1 << slot for slot, member in enumerate(fragment.ensemble) if member.instance in up
    )
    return fragment.rule(ledger.quorum).acks_all(mask)
