"""Restoring missing or damaged copies, ledger by ledger.

Rules: PROTOCOL R9 and C12.
"""

from collections.abc import Callable

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.ledger_move import LedgerMove
from geolog.ledger.copying.copier import Copier, CopyProgress
from geolog.ledger.copying.fragment_copy import LOST_NAMED_MAX, CopyConfig
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.repair_queue import RepairItem, RepairReason
from geolog.metadata.replaced_nodes import ReplacedNode, find_replaced_node
from geolog.protocol.copying import FragmentExtent, final_extents
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState, Member
from topology.errors import DamagedBytesError

_ATTEMPTS_MAX = 3
"""How often to look again at a ledger that other processes change meanwhile."""


@attrs.frozen(kw_only=True)
class MemberComplaint:
    """A member that does not have all its copies now, and the reason."""

    node_id: str
    instance: str
    why: str


@attrs.define(kw_only=True)
class RepairReport:
    """Outcome for one ledger."""

    ledger: int
    stream: str
    state: str
    """Its state in metadata; `deleted` if it is gone, `unreadable` if its record is damaged."""
    entries: int = 0
    """Entries that were checked. The last fragment of a ledger that is not closed belongs to
    its writer, and is not checked."""
    copies_stored: int = 0
    bytes_stored: int = 0
    damaged: int = 0
    """Copies that were found damaged."""
    lost_count: int = 0
    """Entries without an intact copy at any member, though all members answered, and metadata
    still named the same members afterwards."""
    lost: list[int] = attrs.field(factory=list)
    incomplete: list[MemberComplaint] = attrs.field(factory=list)
    unreadable_why: str = ""
    """The damage to its record in metadata."""
    is_complete: bool = False
    """Whether it is CLOSED and every member has every copy that it should have."""
    is_moving: bool = False
    """Whether other processes kept changing its record: missing entries may be elsewhere."""
    is_in_queue: bool = False
    """Whether it stays in the repair queue."""

    def tell_moving(self) -> None:
        """Forget the entries counted as lost: they were looked for by an old record."""
        self.is_moving = True
        if self.lost_count:
            self.lost_count, self.lost, self.incomplete = 0, [], []


class LedgerRepairer:
    """Repairs ledgers, one after another."""

    def __init__(
        self,
        access: ClusterAccess,
        config: CopyConfig,
        on_progress: Callable[[CopyProgress], None] | None = None,
    ) -> None:
        self._access = access
        self._copier = Copier(
            access.replicas, region=access.region, config=config, on_progress=on_progress
        )

    async def repair(self, ledger: LedgerId, *, is_deep: bool = False) -> RepairReport:
        """Give every member that is up its copies. NoSuchLedgerError.

        `is_deep`: read all copies, to find damage that nobody has noticed.
        """
        read = await self._access.ledgers.read_latest(ledger)
        if await self._hand_to_empty_disks(read.record):
            read = await self._access.ledgers.read_latest(ledger)
        report = await self._repair_as(read.record, is_deep=is_deep)
        attempts_count = 1
        while not report.is_complete:
            before, read = read, await self._access.ledgers.read_certain(ledger)
            if read == before:
                break  # Nothing interfered, so another attempt would end the same way.
            if attempts_count == _ATTEMPTS_MAX:
                report.tell_moving()
                break
            earlier, report = report, await self._repair_as(read.record, is_deep=is_deep)
            report.copies_stored += earlier.copies_stored
            report.bytes_stored += earlier.bytes_stored
            attempts_count += 1
        return report

    async def _hand_to_empty_disks(self, record: LedgerRecord) -> bool:
        """Move slots of disks that were given up to the empty disks of their nodes.

        A ledger made ahead with such a disk may come into use after the replacement of its node
        was complete: its writer finds no other node, and goes on with fewer copies.
        """
        live = await self._access.pool.live_nodes()
        instances = {node.instance for node in live}
        successors = {node.node_id: node for node in live}
        gone = {
            member.instance: successors[member.node_id]
            for extent in final_extents(record)
            for member in extent.fragment.ensemble
            if member.instance not in instances and member.node_id in successors
        }
        is_changed = False
        for instance, successor in gone.items():
            if await self._replaced(instance) is not None:
                move = LedgerMove(
                    self._access, self._copier, LedgerId(record.ledger), {instance}, successor
                )
                await move.run()
                is_changed = is_changed or bool(move.fragments_changed)
        return is_changed

    async def _replaced(self, instance: InstanceId) -> ReplacedNode | None:
        return await find_replaced_node(self._access.metadata, self._access.cluster, instance)

    async def _repair_as(self, record: LedgerRecord, *, is_deep: bool) -> RepairReport:
        report = RepairReport(
            ledger=record.ledger, stream=record.stream, state=record.state.value
        )
        live = {node.instance for node in await self._access.pool.live_nodes()}
        complaints: dict[InstanceId, MemberComplaint] = {}
        for extent in final_extents(record):
            await self._repair_extent(record, extent, live, report, complaints, is_deep=is_deep)
        report.incomplete = list(complaints.values())
        report.is_complete = record.state is LedgerState.CLOSED and not complaints
        return report

    async def _repair_extent(
        self,
        record: LedgerRecord,
        extent: FragmentExtent,
        live: set[InstanceId],
        report: RepairReport,
        complaints: dict[InstanceId, MemberComplaint],
        *,
        is_deep: bool,
    ) -> None:
        ensemble = extent.fragment.ensemble
        targets = [slot for slot, member in enumerate(ensemble) if member.instance in live]
        outcome = await self._copier.copy(record, extent, targets, is_deep=is_deep)
        report.entries += extent.count
        report.copies_stored += outcome.copies_stored
        report.bytes_stored += outcome.bytes_stored
        report.damaged += outcome.damaged_count
        report.lost_count += outcome.lost_count
        report.lost += outcome.lost[: LOST_NAMED_MAX - len(report.lost)]
        if not extent.count:
            return
        for slot, member in enumerate(ensemble):
            is_target = slot in targets
            why = outcome.why_incomplete(slot) if is_target else await self._why_away(member)
            if why is not None:
                complaints[member.instance] = MemberComplaint(
                    node_id=member.node_id, instance=member.instance, why=why
                )

    async def _why_away(self, member: Member) -> str:
        if await self._replaced(member.instance) is None:
            return "it is down"
        return f"its disk was given up; run `geolog node replace {member.node_id}` again"

    async def repair_queued(self, *, is_deep: bool = False) -> list[RepairReport]:
        """Repair the ledgers in the repair queue, and remove those that are complete.

        For a ledger with damage all copies are read, as with `is_deep`: a node that has
        restarted since does not remember what it found.
        """
        return [
            await self._repair_item(item, is_deep=is_deep)
            for item in await self._access.repair_queue.list()
        ]

    async def _repair_item(self, item: RepairItem, *, is_deep: bool) -> RepairReport:
        ledger = item.record.ledger
        is_deep = is_deep or RepairReason.DAMAGED in item.record.reasons
        try:
            report = await self.repair(ledger, is_deep=is_deep)
        except NoSuchLedgerError:
            report = RepairReport(ledger=ledger, stream="", state="deleted", is_complete=True)
        except DamagedBytesError as error:
            # A failure must not keep the other queued ledgers waiting.
            report = RepairReport(
                ledger=ledger, stream="", state="unreadable", unreadable_why=str(error)
            )
        is_out = report.is_complete and await self._access.repair_queue.done(item)
        report.is_in_queue = not is_out
        return report
