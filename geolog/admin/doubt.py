"""Ending the doubt of nodes from which damage took records, once all of it is made good.

A node in doubt says UNKNOWN of what it does not find, and takes nothing of writers for ledgers
that it may have promised something about. Nobody but one who sees metadata can say that nothing
is missing any more: every ledger below the node's bound that has it as a member is CLOSED, is
fenced there under its last epoch, and the node has all its entries. A ledger that was taken
over may have been fenced at the node as well before recovery gave its slot away: what its old
writer must not get there is refused again too.

Rules: PROTOCOL C7.
"""

import json

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.copying.copier import Copier
from geolog.ledger.copying.member_answers import MemberAnswers
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.copying import final_extents
from geolog.protocol.ids import Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from topology.errors import GeologError

_EPOCH_FIRST = Epoch(1)
"""That of a ledger that nobody has taken over. A node that had let go of one, and lost that it
had, finds it of no use again, and fences it anew."""


@attrs.frozen(kw_only=True)
class DoubtReport:
    """What came of a node in doubt."""

    node_id: str
    is_settled: bool
    why_not: str = ""


async def settle_doubts(
    access: ClusterAccess, copier: Copier, *, timeout_s: float
) -> list[DoubtReport]:
    """End the doubt of each node that is up, in doubt, and lacks nothing any more."""
    members = MemberAnswers(access.pool, timeout_s=timeout_s)
    reports = []
    for node in await access.pool.live_nodes():
        try:
            doubt = doubt_of(await members.status(node.instance))
            if doubt is None:
                continue
            why_not = await _why_not(access, copier, members, node, doubt.below)
            if not why_not:
                await members.settle_doubt(node.instance, doubt.below, doubt.start_number)
        except GeologError as error:
            why_not = f"{error}: `geolog ledger repair --queue` again, when it answers"
        reports.append(
            DoubtReport(node_id=node.node_id, is_settled=not why_not, why_not=why_not)
        )
    return reports


async def nodes_in_doubt(
    access: ClusterAccess, *, timeout_s: float
) -> list[tuple[NodeRecord, "Doubt"]]:
    """The nodes that answer, and say that they are in doubt."""
    members = MemberAnswers(access.pool, timeout_s=timeout_s)
    found = []
    for node in await access.pool.live_nodes():
        try:
            doubt = doubt_of(await members.status(node.instance))
        except GeologError:
            continue  # One that is away is made whole another time.
        if doubt is not None:
            found.append((node, doubt))
    return found


async def ledgers_lacking(
    access: ClusterAccess, copier: Copier, node: NodeRecord, doubt: "Doubt"
) -> list[LedgerId]:
    """The CLOSED ledgers that a node in doubt lacks copies of. UnavailableError."""
    return [
        record.ledger
        for bucket in await access.catalog.buckets()
        for record in await access.catalog.records_in(bucket)
        if record.ledger < doubt.below
        and record.state is LedgerState.CLOSED
        and await _lacking_count(copier, node, record)
    ]


async def _lacking_count(copier: Copier, node: NodeRecord, record: LedgerRecord) -> int:
    """How many entries of its own the node does not say it has."""
    lacking_count = 0
    for extent in final_extents(record):
        slot = extent.slot_of(node.instance)
        if slot is not None:
            lacking_count += await copier.lacks_count(record, extent, slot)
    return lacking_count


@attrs.frozen
class Doubt:
    """Up to which ledger a node is in doubt, and since which of its starts."""

    below: LedgerId
    start_number: int


def doubt_of(status: str) -> Doubt | None:
    """The doubt of a node, as its status says; None if it is in none."""
    document = json.loads(status)
    if not document["is_any_in_doubt"]:
        return None
    return Doubt(LedgerId(document["doubt_below"]), document["start_number"])


async def _why_not(
    access: ClusterAccess,
    copier: Copier,
    members: MemberAnswers,
    node: NodeRecord,
    below: LedgerId,
) -> str:
    """Why the doubt cannot be ended now; empty if it can."""
    for bucket in await access.catalog.buckets():
        for record in await access.catalog.records_in(bucket):
            if record.ledger >= below:
                continue
            why_not = await _make_whole(copier, members, node, record)
            if why_not:
                return why_not
    return ""


async def _make_whole(
    copier: Copier, members: MemberAnswers, node: NodeRecord, record: LedgerRecord
) -> str:
    """Fence one ledger at the node where that may be lost; why it is not whole there."""
    is_closed = record.state is LedgerState.CLOSED
    if is_closed and (record.epoch > _EPOCH_FIRST or _is_member(record, node.instance)):
        await members.fence(record.ledger, node.instance, record.epoch)
    if not _is_member(record, node.instance):
        return ""
    if not is_closed:
        return (
            f"ledger {record.ledger} is not closed yet, but {record.state.value}: its segment's"
            f" end closes it, or `geolog ledger recover {record.ledger}` does; then `geolog"
            " ledger repair --queue` again"
        )
    lacking_count = await _lacking_count(copier, node, record)
    if not lacking_count:
        return ""
    return (
        f"it lacks {lacking_count} entries of ledger {record.ledger}: `geolog ledger repair"
        f" {record.ledger}` brings them, or says why it cannot"
    )


def _is_member(record: LedgerRecord, instance: InstanceId) -> bool:
    return any(
        member.instance == instance
        for fragment in record.fragments
        for member in fragment.ensemble
    )
