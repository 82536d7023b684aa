"""Description of one storage node: its metadata record and its own status."""

import json

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.node_lookup import node_named
from geolog.metadata.nodes import find_live_node, list_known_nodes
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from topology.errors import GeologError

_STATUS_S = 3.0

StatusDocument = dict[str, object]


@attrs.frozen(kw_only=True)
class NodeDetails:
    """One node: its record, the fragments that name it, and its own status."""

    node_id: str
    instance: str
    address: str
    location: str
    region: str
    rack: str
    state: str
    """writable, readonly or down."""
    fragments_closed: int
    """Final fragments, of any ledger, that have it as a member."""
    fragments_open: int
    """Last fragments of ledgers that are not CLOSED."""
    status: StatusDocument | None
    """The node's own status; None if it is down or does not answer."""
    why_silent: str | None


async def describe_node(access: ClusterAccess, node_id: str) -> NodeDetails:
    """Describe a node. UnknownNodeError names the nearest id."""
    known = await list_known_nodes(access.metadata, access.cluster)
    record = node_named(node_id, known)
    live = await find_live_node(access.metadata, access.cluster, record.instance)
    status, why_silent = None, "it is down" if live is None else None
    if live is not None:
        try:
            replicas = access.replicas.within(_STATUS_S)
            status = json.loads(await replicas.status(record.instance))
        except GeologError as error:
            why_silent = str(error)
    ledgers = await access.catalog.with_member({record.instance})
    counts = [_fragments_of(ledger, record.instance) for ledger in ledgers]
    return NodeDetails(
        node_id=record.node_id,
        instance=record.instance,
        address=str(record.address),
        location=str(record.location),
        region=record.location.region,
        rack=record.location.rack,
        state="down" if live is None else live.state.value,
        fragments_closed=sum(closed for closed, _ in counts),
        fragments_open=sum(open_ for _, open_ in counts),
        status=status,
        why_silent=why_silent,
    )


def _fragments_of(ledger: LedgerRecord, instance: InstanceId) -> tuple[int, int]:
    """The number of closed and of open fragments that have an instance as a member."""
    is_member = [
        any(member.instance == instance for member in fragment.ensemble)
        for fragment in ledger.fragments
    ]
    open_count = int(is_member[-1] and ledger.state is not LedgerState.CLOSED)
    return sum(is_member) - open_count, open_count
