"""Looking at a cluster as a whole: its nodes and its health."""

from collections.abc import Mapping, Sequence
from functools import partial

import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.doubt import Doubt, doubt_of
from geolog.admin.health import ClusterState, judge
from geolog.admin.placement.placement_health import LEDGERS_JUDGED_MAX, judge_ledgers
from geolog.admin.rooms import StreamState
from geolog.background import all_of
from geolog.catalog.descriptions import HealthReport, NodeDescription
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.reachability import AskReach
from geolog.metadata.replaced_nodes import ReplacedNode, list_replaced_nodes
from geolog.protocol.relay_report import RelayedStreamReport
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import GeologError, NoSuchStreamError

_KNOCK_S = 2.0
"""How long a node may take to answer before it counts as down."""

_AT_ONCE = 64
"""Partitions to look at together."""


async def list_nodes(access: ClusterAccess) -> list[NodeDescription]:
    """All nodes that ever joined, each once, with replaced disks that still have copies."""
    live = {
        record.instance: record
        for record in await list_live_nodes(access.metadata, access.cluster)
    }
    past: dict[str, list[ReplacedNode]] = {}
    for gone in await _unmoved(access):
        past.setdefault(gone.node_id, []).append(gone)
    found = []
    for record in await list_known_nodes(access.metadata, access.cluster):
        up = live.get(record.instance)
        disks = past.pop(record.node_id, [])
        found.append(_description(record, "down" if up is None else up.state.value, disks))
    found += [_description(disks[-1], "replaced", disks) for disks in past.values()]
    return sorted(found, key=lambda one: one.node_id)


def _description(
    node: NodeRecord | ReplacedNode, state: str, past: Sequence[ReplacedNode]
) -> NodeDescription:
    return NodeDescription(
        node_id=node.node_id,
        instance=node.instance,
        address=str(node.address),
        location=str(node.location),
        region=node.location.region,
        rack=node.location.rack,
        state=state,
        past_disks=[gone.instance for gone in past],
    )


async def _unmoved(access: ClusterAccess) -> list[ReplacedNode]:
    replaced = await list_replaced_nodes(access.metadata, access.cluster)
    return [one for one in replaced if not one.is_moved]


async def judge_cluster(
    access: ClusterAccess,
    *,
    ask_reach: AskReach | None,
    ledgers_max: int | None = LEDGERS_JUDGED_MAX,
    links: Sequence[RelayedStreamReport] = (),
    divergences: Mapping[str, int] | None = None,
) -> HealthReport:
    """Judge the cluster now; if there are more ledgers than `ledgers_max`, judge a sample.

    links: of relayed streams, as their coordinators tell. divergences: how many each stream
    has, of those that have any.
    `ask_reach`: asks the servers of the metadata store for their state; None if not known.
    """
    switches = await read_switches(access.metadata, access.cluster)
    known = await list_known_nodes(access.metadata, access.cluster)
    answering = await _answering_nodes(access)
    queued = await access.repair_queue.ledgers()
    reach = None if ask_reach is None else await ask_reach()
    cluster = ClusterState(
        known=known,
        live=[record for record, _ in answering],
        unmoved=await _unmoved(access),
        doubt_below={
            record.instance: doubt.below for record, doubt in answering if doubt is not None
        },
        queued_count=len(queued),
        forbidden_regions=switches.forbidden_regions,
        own_policies=access.pool.nodes.own_policies,
        metadata=access.metadata.session_state.value,
        metadata_spare=None if reach is None else reach.spare_count,
        metadata_away=() if reach is None else reach.away,
        links=links,
        divergences=divergences or {},
    )
    streams = await _stream_states(access)
    ledgers = await judge_ledgers(
        access,
        {one.name.partition("#")[0]: one.survive for one in streams},
        up={record.instance for record in cluster.live},
        doubt_below=cluster.doubt_below,
        queued=frozenset(queued),
        ledgers_max=ledgers_max,
    )
    return judge(cluster, streams, ledgers)


async def _stream_states(access: ClusterAccess) -> list[StreamState]:
    """Each partition and mirror of each stream, except streams that are deleted meanwhile."""
    catalog, asked = StreamCatalog(access.metadata, access.paths), []
    for name in await catalog.names():
        try:
            record = await catalog.read(name)
        except NoSuchStreamError:
            continue
        asked += [partial(_state_of, access, record, one) for one in record.log_names()]
    states: list[StreamState] = []
    for start in range(0, len(asked), _AT_ONCE):
        found = await all_of(asked[start : start + _AT_ONCE])
        states += [one for one in found if one is not None]
    return states


async def _state_of(
    access: ClusterAccess, stream: StreamRecord, partition: PartitionName
) -> StreamState | None:
    listed = await access.partitions.segments.last(partition)
    ledger = None
    if listed is not None:
        try:
            ledger = (await access.ledgers.read(listed.record.ledger)).record
        except NoSuchLedgerError:
            return None
    terms = stream.placement_of(partition)
    what, fails_over = f"{stream.name}#{partition.number}", ""
    if stream.is_mirror(partition):
        what = f"{what}, its mirror in {terms.region}"
    else:
        what = str(stream.name) if stream.partitions == 1 else what
        fails_over = str(stream.name) if stream.relay_to else ""
    return StreamState(what, stream.quorum, ledger, terms, stream.survive, fails_over)


async def _answering_nodes(access: ClusterAccess) -> list[tuple[NodeRecord, Doubt | None]]:
    """The live nodes that answer, and the doubt of each.

    A record outlives its node until the session expires, and a node may hang.
    """
    replicas = access.replicas.within(_KNOCK_S)
    answering: list[tuple[NodeRecord, Doubt | None]] = []

    async def knock(record: NodeRecord) -> None:
        try:
            doubt = doubt_of(await replicas.status(record.instance))
        except GeologError:
            return  # The node counts as down.
        answering.append((record, doubt))

    async with trio.open_nursery() as nursery:
        for record in await access.pool.live_nodes():
            nursery.start_soon(knock, record)
    return sorted(answering, key=lambda one: one[0].node_id)
