"""Settling the doubt of nodes that lost records to damage, once all copies are back.

A node in doubt answers UNKNOWN about entries that it does not find, and refuses writers' adds
for ledgers that it may have promised something about. Only a process that sees metadata can
tell that nothing is missing any more: every ledger below the node's bound that has it as a
member is CLOSED, is fenced there under its last epoch, and the node has all its entries. A
ledger that was taken over may have been fenced at the node before recovery gave its slot away.
It is fenced there again, so that its old writer is still refused.

Rules: PROTOCOL C7.
"""

import json

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.copying.copier import Copier
from geolog.ledger.nodes.connection import NodeRefusedError
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.copying import final_extents
from geolog.protocol.ids import Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.messages import Reason
from topology.errors import GeologError

_EPOCH_FIRST = Epoch(1)
"""The epoch of a ledger that nobody has taken over. A node that let go of one, and lost that
record, finds that it does not need it, and fences it again."""


@attrs.frozen(kw_only=True)
class DoubtReport:
    """Outcome of settling one doubtful node."""

    node_id: str
    is_settled: bool
    why_not: str = ""


async def settle_doubts(
    access: ClusterAccess, copier: Copier, *, timeout_s: float
) -> list[DoubtReport]:
    """Settle the doubt of each node that is up and lacks nothing any more."""
    replicas = access.replicas.within(timeout_s)
    reports = []
    for node in await access.pool.live_nodes():
        try:
            doubt = doubt_of(await replicas.status(node.instance))
            if doubt is None:
                continue
            why_not = await _why_not(access, copier, replicas, node, doubt.below)
            if not why_not:
                await replicas.settle_doubt(node.instance, doubt.below, doubt.start_number)
        except GeologError as error:
            why_not = f"{error}; run `geolog ledger repair --queue` again when it answers"
        reports.append(
            DoubtReport(node_id=node.node_id, is_settled=not why_not, why_not=why_not)
        )
    return reports


async def nodes_in_doubt(
    access: ClusterAccess, *, timeout_s: float
) -> list[tuple[NodeRecord, "Doubt"]]:
    """The nodes that answer, and say that they are in doubt."""
    replicas = access.replicas.within(timeout_s)
    found = []
    for node in await access.pool.live_nodes():
        try:
            doubt = doubt_of(await replicas.status(node.instance))
        except GeologError:
            continue  # A node that is away is settled another time.
        if doubt is not None:
            found.append((node, doubt))
    return found


async def ledgers_lacking(
    access: ClusterAccess, copier: Copier, node: NodeRecord, doubt: "Doubt"
) -> list[LedgerId]:
    """The CLOSED ledgers of which a node in doubt lacks copies. UnavailableError."""
    return [
        record.ledger
        for bucket in await access.catalog.buckets()
        for record in await access.catalog.records_in(bucket)
        if record.ledger < doubt.below
        and record.state is LedgerState.CLOSED
        and await _lacking_count(copier, node, record)
    ]


async def _lacking_count(copier: Copier, node: NodeRecord, record: LedgerRecord) -> int:
    """How many of its own entries the node does not report."""
    lacking_count = 0
    for extent in final_extents(record):
        slot = extent.slot_of(node.instance)
        if slot is not None:
            lacking_count += await copier.lacks_count(record, extent, slot)
    return lacking_count


@attrs.frozen
class Doubt:
    """The bound on the ledgers in doubt at a node, and the start since which they are."""

    below: LedgerId
    start_number: int


def doubt_of(status: str) -> Doubt | None:
    """A node's doubt, as its status says; None if it is not in doubt."""
    document = json.loads(status)
    if not document["is_any_in_doubt"]:
        return None
    return Doubt(LedgerId(document["doubt_below"]), document["start_number"])


async def _why_not(
    access: ClusterAccess,
    copier: Copier,
    replicas: Replicas,
    node: NodeRecord,
    below: LedgerId,
) -> str:
    """The reason why the doubt cannot be settled now; empty if it can."""
    for bucket in await access.catalog.buckets():
        for record in await access.catalog.records_in(bucket):
            if record.ledger >= below:
                continue
            why_not = await _make_whole(copier, replicas, node, record)
            if why_not:
                return why_not
    return ""


async def _make_whole(
    copier: Copier, replicas: Replicas, node: NodeRecord, record: LedgerRecord
) -> str:
    """Fence one ledger at the node, in case its fence was lost; why it is not whole there."""
    is_closed = record.state is LedgerState.CLOSED
    if is_closed and (record.epoch > _EPOCH_FIRST or _is_member(record, node.instance)):
        await _fence(replicas, node, record)
    if not _is_member(record, node.instance):
        return ""
    if not is_closed:
        return (
            f"ledger {record.ledger} is {record.state.value}, not closed: wait for the end of"
            f" its segment, or run `geolog ledger recover {record.ledger}`; then run `geolog"
            " ledger repair --queue` again"
        )
    lacking_count = await _lacking_count(copier, node, record)
    if not lacking_count:
        return ""
    return (
        f"it lacks {lacking_count} entries of ledger {record.ledger}: `geolog ledger repair"
        f" {record.ledger}` restores them, or says why it cannot"
    )


async def _fence(replicas: Replicas, node: NodeRecord, record: LedgerRecord) -> None:
    """Durably fence the ledger at the node. A ledger deleted there is as good."""
    try:
        await replicas.fence(record.ledger, node.instance, record.epoch)
    except NodeRefusedError as error:
        if error.reason is not Reason.NO_SUCH_LEDGER:
            raise


def _is_member(record: LedgerRecord, instance: InstanceId) -> bool:
    return any(
        member.instance == instance
        for fragment in record.fragments
        for member in fragment.ensemble
    )
