"""Judging the health of a cluster: what is wrong, and which command fixes it.

Three states. *Healthy*: every stream works, and the next loss breaks no promise. *Degraded*:
everything works, but the next loss would break a promise, or copies may be missing.
*Unhealthy*: something does not work now: a stream that cannot be written, taken over or read.
Each reason names the node or stream, what it risks, why, and the remedy.

Rules: PROTOCOL P13.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from geolog.admin.placement.placement_health import (
    Flaws,
    FragmentShape,
    LedgersJudged,
    StreamLedgers,
    named,
)
from geolog.admin.regions_spare import Holding, Room, regions_spare
from geolog.admin.rooms import Rooms, StreamState
from geolog.catalog.descriptions import HealthReport, HealthState
from geolog.ledger.writing.ledger_placement import adherence_as_recorded
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.replaced_nodes import ReplacedNode
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from topology.location import Location
from topology.own_policy import NONE_KNOWN, OwnPolicies
from topology.promise import promise_broken
from topology.quorum import QuorumConfig
from topology.ring.window_rule import Adherence
from topology.stream_policy import PolicyKind
from topology.survive import Loss

STREAMS_TOLD_MAX = 10
"""Streams to name for one kind of trouble; any more are only counted."""

_REPAIR = "`geolog ledger repair --queue`"
_MOVE = "`geolog placement repair`"


@attrs.frozen(kw_only=True)
class ClusterState:
    """The state of a cluster, as far as health depends on it."""

    known: Sequence[NodeRecord]
    live: Sequence[NodeRecord]
    """The nodes that answer."""
    unmoved: Sequence[ReplacedNode] = ()
    """Disks that were given up, and whose copies are not known to have been moved."""
    doubt_below: Mapping[InstanceId, LedgerId] = attrs.field(factory=dict)
    """Nodes in doubt after damage: they may lack copies of ledgers below this id."""
    queued_count: int = 0
    """Ledgers in the repair queue."""
    forbidden_regions: frozenset[str] = frozenset()
    own_policies: OwnPolicies = NONE_KNOWN
    """The placement policies of other packages that this process knows."""
    metadata: str = "connected"
    metadata_spare: int | None = None
    """Servers that the metadata store can lose now and keep a majority; None if not known.
    Assumes one server in each region."""
    metadata_away: Sequence[str] = ()
    """For each of its servers that is unavailable, the reason."""
    links: Sequence[RelayedStreamReport] = ()
    """Each relayed partition on its way to each target."""
    divergences: Mapping[str, int] = attrs.field(factory=dict)
    """Streams of which regions keep records aside that a failover left behind, and how many
    divergences there are of each."""

    @property
    def down(self) -> list[NodeRecord]:
        """Nodes that joined but do not answer."""
        up = {record.instance for record in self.live}
        return [record for record in self.known if record.instance not in up]


@attrs.frozen
class _Reason:
    """Something that is wrong, and how bad it is."""

    state: HealthState
    text: str


def judge(
    cluster: ClusterState, streams: Sequence[StreamState], ledgers: LedgersJudged
) -> HealthReport:
    """Judge the cluster: its state, the reasons, and how many more regions it can lose."""
    rooms = Rooms(cluster.live, cluster.forbidden_regions, cluster.own_policies)
    reasons = [
        *_node_reasons(cluster, ledgers),
        *_metadata_reasons(cluster),
        *_queue_reasons(cluster, ledgers),
        *_link_reasons(cluster),
        *_stream_reasons(cluster, streams, rooms),
        *_ledger_reasons(ledgers.streams),
    ]
    spare = regions_spare(
        {record.location.region for record in cluster.live},
        _holdings(streams, ledgers, cluster.live),
        [Room(one.name, _room_of(rooms, one)) for one in streams],
        metadata_spare=cluster.metadata_spare,
    )
    by_gravity = sorted(reasons, key=lambda one: one.state is not HealthState.UNHEALTHY)
    state = by_gravity[0].state if by_gravity else HealthState.HEALTHY
    node_ids = {record.instance: record.node_id for record in cluster.known}
    regions = Counter(record.location.region for record in cluster.live)
    return HealthReport(
        state=state,
        is_healthy=state is HealthState.HEALTHY,
        reasons=[one.text for one in by_gravity],
        regions_spare=spare.count,
        regions_spare_set_by=spare.set_by,
        nodes_live=len(cluster.live),
        nodes_known=len(cluster.known),
        nodes_in_doubt={
            node_ids.get(instance, instance): ledgers.doubtful[instance]
            for instance in cluster.doubt_below
        },
        repair_queue=cluster.queued_count,
        regions=dict(sorted(regions.items())),
        streams=len({one.name.partition("#")[0] for one in streams}),
        placement=ledgers.health,
        metadata=cluster.metadata,
    )


# --------------------------------------------------------------- nodes, and the repair queue


def _node_reasons(cluster: ClusterState, ledgers: LedgersJudged) -> Iterator[_Reason]:
    """Reasons that concern nodes."""
    if not cluster.known:
        yield _unhealthy("no storage node has joined a cluster of this name")
    for down in cluster.down:
        yield _degraded(
            f"node {down.node_id} ({down.location}) is down: start it, or, if its disk is lost,"
            f" run `geolog node replace {down.node_id}`"
        )
    for record in cluster.live:
        if not record.is_writable:
            yield _degraded(
                f"node {record.node_id} ({record.location}) is {record.state.value} and accepts"
                f" no new entries: free disk space there (`geolog node describe"
                f" {record.node_id}`)"
            )
    node_ids = {record.instance: record for record in cluster.live}
    for instance in cluster.doubt_below:
        node = node_ids[instance]
        yield _degraded(
            f"node {node.node_id} ({node.location}) is in doubt: damage to its journal may have"
            f" taken copies of {_counted(ledgers.doubtful[instance], 'ledger')}; {_REPAIR}"
            " restores them and settles the doubt"
        )
    placement = ledgers.health
    if placement.is_sample or placement.disks_given_up:
        # If all ledgers were judged, and none names such a disk, all its copies were moved.
        for gone in cluster.unmoved:
            yield _degraded(
                f"the disk of node {gone.node_id} ({gone.location}) was given up, but not all"
                f" of its copies are moved: run `geolog node replace {gone.node_id}` again"
            )


def _metadata_reasons(cluster: ClusterState) -> Iterator[_Reason]:
    """Metadata servers that are away: without a majority no stream can be opened."""
    for why in cluster.metadata_away:
        yield _degraded(
            f"a ZooKeeper server is away ({why}): start it; until then ZooKeeper can lose"
            f" {cluster.metadata_spare} more"
        )


def _queue_reasons(cluster: ClusterState, ledgers: LedgersJudged) -> Iterator[_Reason]:
    """Ledgers in the repair queue: copies are, or may be, missing."""
    queued = {name: one.queued for name, one in ledgers.streams.items() if one.queued}
    rest = cluster.queued_count
    for name, found in sorted(queued.items())[:STREAMS_TOLD_MAX]:
        yield _degraded(
            f"{_stream(name)}: {_counted(len(found), 'ledger')} ({named(found)}) may lack"
            f" copies or hold damaged ones (repair queue): run {_REPAIR}"
        )
        rest -= len(found)
    if rest > 0:
        yield _degraded(
            f"{_counted(rest, 'more ledger' if queued else 'ledger')} may lack copies or hold"
            f" damaged ones (repair queue): run {_REPAIR}"
        )


# --------------------------------------------------------------- links of relayed streams

_LINK_TROUBLE = {
    LinkState.STOPPED: "has stopped",
    LinkState.DOWN: "is down",
    LinkState.PAUSED: "is paused",
    LinkState.BEHIND: "is behind",
}


def _link_reasons(cluster: ClusterState) -> Iterator[_Reason]:
    """Links that do not keep up: losing the home would lose what its mirrors lack."""
    for state, trouble in _LINK_TROUBLE.items():
        links: dict[tuple[str, str], list[RelayedStreamReport]] = {}
        for one in cluster.links:
            if one.state is state:
                links.setdefault((one.home, one.target), []).append(one)
        yield from _first([_link_reason(trouble, found) for found in links.values()])
    yield from _first([_held_reason(one) for one in cluster.links if one.is_held])
    yield from _first([_diverged_reason(*one) for one in cluster.divergences.items()])


def _diverged_reason(stream: str, count: int) -> _Reason:
    return _degraded(
        f"stream {stream} has {_counted(count, 'divergence')}: records that a failover left"
        f" behind. Export them, then discard them; see `geolog relay divergence ls {stream}`"
    )


def _held_reason(one: RelayedStreamReport) -> _Reason:
    return _unhealthy(
        f"stream {one.stream}#{one.partition} takes no appends: {one.target} is further behind"
        " than its rpo max allows. It goes on by itself once the link has caught up; see"
        " `geolog relay status`, or change the bound (`geolog stream update --rpo-max`)"
    )


def _link_reason(trouble: str, found: Sequence[RelayedStreamReport]) -> _Reason:
    worst = max(found, key=lambda one: (one.lag_s or 0, one.lag_records or 0))
    more = f" and {_counted(len(found) - 1, 'more partition')}" if len(found) > 1 else ""
    lacks = ""
    if worst.lag_records is not None and worst.lag_s is not None:
        lacks = f", which lacks up to {worst.lag_records:,} records ({worst.lag_s:.0f} s)"
    why = f": {worst.alarm}" if worst.alarm else ""
    return _degraded(
        f"the relay of stream {worst.stream}#{worst.partition}{more} from {worst.home} to"
        f" {worst.target}{lacks}, {trouble}{why}; see `geolog relay status`"
    )


# --------------------------------------------------------------- streams, and their last ledger


def _stream_reasons(
    cluster: ClusterState, streams: Sequence[StreamState], rooms: Rooms
) -> Iterator[_Reason]:
    """Reasons that concern each stream's next ledger, and its open one."""
    for found in (
        [_no_room(stream, rooms, cluster) for stream in streams],
        [_open_trouble(stream, cluster, rooms) for stream in streams],
        [_no_room_after(stream, rooms, cluster) for stream in streams],
    ):
        yield from _first([one for one in found if one is not None])


def _first(reasons: Sequence[_Reason]) -> Iterator[_Reason]:
    """A few of the reasons of one kind, the unhealthy ones first."""
    ordered = sorted(reasons, key=lambda one: one.state is not HealthState.UNHEALTHY)
    yield from ordered[:STREAMS_TOLD_MAX]
    if left := ordered[STREAMS_TOLD_MAX:]:
        more = _counted(len(left), "more stream")
        yield _Reason(left[0].state, f"{more} with the same problem")


def _no_room(stream: StreamState, rooms: Rooms, cluster: ClusterState) -> _Reason | None:
    if rooms.has_room(stream):
        return None
    what = "no new ledger can be placed"
    if rooms.is_undecided(stream):
        what = "whether a new ledger can be placed is undecided: the search was cut off"
    return _unhealthy(
        f"stream {stream.name}: {what} ({stream.quorum}): {_more_nodes(cluster)}"
        f"{_or_fail_over(stream, cluster)}"
    )


def _or_fail_over(stream: StreamState, cluster: ClusterState) -> str:
    """The other way out for a stream whose home has no node up, and that has mirrors."""
    home = stream.placement.region
    if not stream.fails_over or any(one.location.region == home for one in cluster.live):
        return ""
    return f"; or, if {home} is lost, see `geolog relay failover {stream.fails_over} --dry-run`"


def _open_trouble(stream: StreamState, cluster: ClusterState, rooms: Rooms) -> _Reason | None:
    """Reasons that concern the fragment being written."""
    ledger = stream.last_ledger
    if ledger is None or ledger.state is LedgerState.CLOSED:
        return None
    fragment = ledger.fragments[-1]
    up = {record.instance for record in cluster.live}
    away = ", ".join(one.node_id for one in fragment.ensemble if one.instance not in up)
    about = f"stream {stream.name}: ledger {ledger.ledger}"
    if not fragment.rule(ledger.quorum).acks_all(_mask(fragment, up)):
        mends = f"start {away}" if away else _leaving(ledger, cluster, rooms, stream)
        return _unhealthy(
            f"{about} has too few members up to acknowledge appends: {mends}"
            f"{_or_fail_over(stream, cluster)}"
        )
    adherence = adherence_as_recorded(ledger, fragment, cluster.own_policies)
    means = ""
    if adherence is not Adherence.STRICT and (stream.survive or rooms.has_better(stream)):
        means = _what_soft_means(ledger, adherence)
    elif stream.survive and (broken := _broken(stream, ledger.quorum, fragment, None)):
        means = f"does not keep its promise {stream.survive!r}: {broken}"
    if means:
        if rooms.is_undecided(stream):
            means += (
                "; whether a strict ensemble exists is undecided: the search for it was cut off"
            )
        return _degraded(f"{about} {means}: {_leaving(ledger, cluster, rooms, stream)}")
    if stream.survive and away and (broken := _broken(stream, ledger.quorum, fragment, up)):
        return _degraded(
            f"{about} does not keep its promise {stream.survive!r} while {away} is down:"
            f" {broken}; start the nodes that are down"
        )
    return None


def _leaving(
    ledger: LedgerRecord, cluster: ClusterState, rooms: Rooms, stream: StreamState
) -> str:
    """How a stream gets from an open ledger to a better one."""
    if not rooms.has_better(stream):
        return f"{_more_nodes(cluster)}; its writer then moves to a better ledger"
    return (
        "its writer will move to a better ledger by itself; if no writer runs, run `geolog"
        f" ledger recover {ledger.ledger}`, then {_MOVE}"
    )


def _no_room_after(stream: StreamState, rooms: Rooms, cluster: ClusterState) -> _Reason | None:
    """A promise includes that a new ledger can be placed after the loss."""
    if not stream.survive or not rooms.has_room(stream):
        return None
    loss = Loss.parse(stream.survive)
    if loss.kind != "region":
        return None
    regions = sorted({record.location.region for record in cluster.live})
    for lost in itertools.combinations(regions, loss.domains):
        if not rooms.has_room(stream, frozenset(lost)):
            return _degraded(
                f"stream {stream.name} cannot lose region {' and '.join(lost)}: no new ledger"
                f" could be placed then ({stream.quorum}; promise {stream.survive!r});"
                f" {_more_nodes(cluster)}"
            )
    return None


def _more_nodes(cluster: ClusterState) -> str:
    """The action that makes room for ledgers."""
    if down := cluster.down:
        return f"start {named_nodes(down)}"
    if cluster.forbidden_regions:
        region = min(cluster.forbidden_regions)
        return f"start more nodes, or run `geolog region allow-placement {region}`"
    return "start more nodes"


def named_nodes(nodes: Sequence[NodeRecord]) -> str:
    """A few node ids in words."""
    shown = ", ".join(one.node_id for one in nodes[:STREAMS_TOLD_MAX])
    more = len(nodes) - STREAMS_TOLD_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown


def _broken(
    stream: StreamState,
    quorum: QuorumConfig,
    fragment: Fragment,
    up: Iterable[InstanceId] | None,
) -> str | None:
    """How this ensemble breaks the stream's promise; None if it keeps it.

    Members that are not `up` count as lost; None counts all as up.
    """
    there = None if up is None else set(up)
    places: tuple[Location | None, ...] = tuple(
        one.location if there is None or one.instance in there else None
        for one in fragment.ensemble
    )
    return promise_broken(Loss.parse(stream.survive), quorum, places)


def _what_soft_means(ledger: LedgerRecord, adherence: Adherence) -> str:
    if ledger.placement.policy is PolicyKind.REGION_AWARE:
        return "would not survive losing another region"
    return f"meets its policy {ledger.placement.name!r} only as {adherence.value}"


# --------------------------------------------------------------- fragments that are final


def _ledger_reasons(streams: Mapping[str, StreamLedgers]) -> Iterator[_Reason]:
    """Reasons that concern the ledgers of streams, except open fragments."""
    for found in (
        [
            _gone(name, mirror, flaws)
            for name, one in sorted(streams.items())
            for mirror, flaws in sorted(one.gone.items())
        ],
        _flawed(streams, lambda one: one.unreadable, _unreadable),
        _flawed(streams, lambda one: one.failed, _failed),
        _flawed(streams, lambda one: one.weak, _weak),
        _flawed(streams, lambda one: one.hurt, _hurt),
    ):
        yield from _first(found)


def _flawed(
    streams: Mapping[str, StreamLedgers],
    flaws_of: Callable[[StreamLedgers], Flaws],
    say: Callable[[str, Flaws, StreamLedgers], _Reason],
) -> list[_Reason]:
    worst = sorted(
        ((name, one) for name, one in streams.items() if flaws_of(one).count),
        key=lambda each: (-flaws_of(each[1]).count, each[0]),
    )
    return [say(_stream(name), flaws_of(one), one) for name, one in worst]


def _gone(name: str, mirror: str, flaws: Flaws) -> _Reason:
    where = f"entries of {_fragments(flaws)}, were on no other disk than those of {flaws.why},"
    if mirror:
        return _unhealthy(
            f"{_stream(name)}: its mirror in {mirror} has lost records: {where} which were"
            f" given up; run `geolog relay resync {name} --target {mirror}`: its home sends"
            " them again"
        )
    return _unhealthy(
        f"{_stream(name)} has lost records: {where} which were given up; have the data of such"
        " a disk recovered, or accept the loss"
    )


def _unreadable(stream: str, flaws: Flaws, _: StreamLedgers) -> _Reason:
    return _unhealthy(
        f"{stream}: entries of {_fragments(flaws)}, have no copy on a node that is up: start"
        f" {flaws.why}"
    )


def _failed(stream: str, flaws: Flaws, _: StreamLedgers) -> _Reason:
    return _unhealthy(
        f"{stream}: {_fragments(flaws)}, violate the policy: {flaws.why}; run {_MOVE}, or see"
        " `geolog placement show STREAM --problems` for the reason"
    )


def _weak(stream: str, flaws: Flaws, one: StreamLedgers) -> _Reason:
    mends = (
        f"{_MOVE} can fix {one.mendable:,}"
        if one.mendable
        else f"start nodes in other regions, then run {_MOVE}"
    )
    return _degraded(
        f"{stream} might not survive the next loss: {_fragments(flaws)}: {flaws.why}; {mends}"
    )


def _hurt(stream: str, flaws: Flaws, _: StreamLedgers) -> _Reason:
    return _degraded(
        f"{stream} might not survive the next loss: {_fragments(flaws)}: {flaws.why}; start"
        " the nodes that are down"
    )


def _fragments(flaws: Flaws) -> str:
    if flaws.count == 1:
        return f"1 fragment, in ledger {flaws.ledger}"
    return f"{flaws.count:,} fragments, e.g. in ledger {flaws.ledger}"


def _stream(name: str) -> str:
    return f"stream {name}" if name else "ledgers without a stream"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _degraded(text: str) -> _Reason:
    return _Reason(HealthState.DEGRADED, text)


def _unhealthy(text: str) -> _Reason:
    return _Reason(HealthState.UNHEALTHY, text)


# --------------------------------------------------------------- what is held, and room


def _holdings(
    streams: Sequence[StreamState], ledgers: LedgersJudged, live: Sequence[NodeRecord]
) -> list[Holding]:
    """All fragments, each stream's last ledger first."""
    up = {record.instance for record in live}
    shapes = {
        FragmentShape.of(ledger.quorum, fragment, up): (stream.name, ledger.ledger)
        for stream in streams
        if (ledger := stream.last_ledger) is not None
        for fragment in ledger.fragments
    }
    for shape, first in ledgers.shapes.items():
        shapes.setdefault(shape, first)
    return [Holding(shape, *first) for shape, first in shapes.items()]


def _mask(fragment: Fragment, up: Iterable[InstanceId]) -> int:
    there = set(up)
    return sum(1 << slot for slot, one in enumerate(fragment.ensemble) if one.instance in there)


def _room_of(rooms: Rooms, stream: StreamState) -> Callable[[frozenset[str]], bool]:
    return lambda lost: rooms.has_room(stream, lost)
