"""Making fragments follow the policy of their stream, with the fewest changes.

Only final fragments: those of CLOSED ledgers, and all but the last of other ledgers. The last
fragment of an open ledger belongs to its writer, which replaces members as needed.

A repair keeps no state. Re-run an interrupted repair; it is idempotent. Fragments that were
repaired adhere, and for the next one the same nodes are drawn again, so copies that were made
are found. Two repairs at the same time do double work, but no harm.

Rules: PROTOCOL L6.
"""

from collections.abc import Callable, Mapping

import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.abandoned_copies import AbandonedCopies
from geolog.admin.placement.fragment_change import ChangeOutcome, FragmentChange
from geolog.admin.placement.placement_description import open_obstacle
from geolog.admin.placement.placement_moves import (
    FragmentMove,
    FragmentRemaining,
    PlacementRepairReport,
    RepairTold,
    SlotMove,
)
from geolog.admin.placement.placement_seen import see_nodes
from geolog.admin.placement.placement_walk import PlacedSegment, PlacementWalk
from geolog.ledger.copying.copier import Copier
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.metadata.replaced_nodes import note_moved
from geolog.protocol.copying import FragmentExtent, final_extents
from geolog.protocol.fragment_placement import judge_fragment
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.placement_plan import (
    FragmentPlan,
    PlacementPlanner,
    RepairAims,
    keeps_ack_sets,
)
from topology.ring.window_rule import Adherence

_ATTEMPTS_MAX = 3
"""How often to try a fragment that other processes change meanwhile."""

_SEEN_S = 10.0
"""Longest age of the list of nodes by which the next segments are planned."""


class PlacementRepairer:
    """Repairs the placement of a stream, of one partition, or of all streams; used once."""

    def __init__(
        self,
        access: ClusterAccess,
        config: CopyConfig,
        *,
        aims: RepairAims,
        on_move: Callable[[FragmentMove], None],
        is_dry_run: bool = False,
        on_progress: Callable[[RepairTold], None] | None = None,
    ) -> None:
        self._access = access
        self._on_move = on_move
        self._aims = aims
        self._on_progress = on_progress
        self._copier = Copier(
            access.replicas,
            region=access.region,
            config=config,
            on_progress=lambda _: self._tell(),
        )
        self._change = FragmentChange(access, self._copier)
        self._segments_count = 0
        self.report = PlacementRepairReport(is_dry_run=is_dry_run)

    async def run(self, target: str | None) -> PlacementRepairReport:
        """Plan and make the changes; each is reported when made. NoSuchStreamError."""
        walk = await PlacementWalk.begin(self._access, target)
        self._segments_count = walk.segments_count
        await self._see()
        given_up = [one.instance for one in self._around.replaced if not one.is_moved]
        while (batch := await walk.next_batch()) is not None:
            if trio.current_time() - self._seen_s > _SEEN_S:
                await self._see()
            for placed in batch:
                for index in range(len(placed.ledger.fragments)):
                    await self._mend(placed, index)
                if not self.report.is_dry_run:
                    self.report.arrivals_cleared += await self._left.clear(placed)
                self.report.segments += 1
                self._tell()
        if target is None and self.report.is_complete and not self.report.is_dry_run:
            for instance in given_up:  # No ledger of any stream names it any more.
                await note_moved(self._access.metadata, self._access.cluster, instance)
        return self.report

    async def _see(self) -> None:
        self._around = await see_nodes(self._access)
        self._seen = self._around.nodes
        now_s = self._around.cluster.now_s
        self._planner = PlacementPlanner(self._seen, self._aims, now_s)
        self._left = AbandonedCopies.of(self._access, self._seen, now_s=now_s)
        self._seen_s = now_s

    def _tell(self) -> None:
        progress = self._copier.progress
        self.report.copies_stored = progress.copies_stored
        self.report.bytes_stored = progress.bytes_stored
        if self._on_progress is not None:
            self._on_progress(
                RepairTold(
                    segments_done=self.report.segments,
                    segments_count=self._segments_count,
                    copied=progress,
                )
            )

    async def _mend(self, placed: PlacedSegment, index: int) -> None:
        """Repair one fragment as far as possible."""
        self.report.fragments += 1
        record = placed.ledger
        if self._wants_nothing(placed, record, index):
            return
        extent = _extent_at(record, index)
        if extent is None:
            self._note(placed, record, index, open_obstacle(record), may_pass=True)
            return
        if self.report.is_dry_run:
            move = self._planned(placed, record, extent)
        else:
            move = await self._change_fragment(placed, index)
        if move is not None:
            self.report.add(move)
            self._on_move(move)

    def _wants_nothing(self, placed: PlacedSegment, record: LedgerRecord, index: int) -> bool:
        fragment = record.fragments[index]
        leaving = any(
            self._planner.is_leaving(fragment, slot) for slot in range(len(fragment.ensemble))
        )
        verdict = judge_fragment(self._seen, record, fragment, placed.survive)
        return verdict.is_good and not leaving

    def _planned(
        self, placed: PlacedSegment, record: LedgerRecord, extent: FragmentExtent
    ) -> FragmentMove | None:
        """Plan the changes without making them."""
        plan = self._planner.plan(record, extent.index, survive=placed.survive)
        changes = self._members_of(plan)
        self._note_obstacle(placed, record, extent, plan)
        if not changes:
            return None
        return _move_of(placed, record, extent, plan, changes)

    async def _change_fragment(self, placed: PlacedSegment, index: int) -> FragmentMove | None:
        """Change one fragment of a ledger by its current record, not by the one listed."""
        attempts_left, refusing, why_refused = _ATTEMPTS_MAX, set[InstanceId](), ""
        while attempts_left > 0:
            try:
                read = await self._access.ledgers.read_latest(placed.ledger.ledger)
            except NoSuchLedgerError:
                return None  # It was trimmed.
            record, extent = read.record, _extent_at(read.record, index)
            if extent is None or self._wants_nothing(placed, record, index):
                return None  # Another repair was first, or a recovery took the ledger.
            plan = self._planner.plan(record, index, survive=placed.survive, refusing=refusing)
            changes = self._members_of(plan)
            if not changes:
                if refusing:
                    self._note(placed, record, index, why_refused, may_pass=False)
                else:
                    self._note_obstacle(placed, record, extent, plan)
                return None
            outcome = await self._make(read, extent, changes)
            self.report.warn(outcome.warnings)
            if outcome.is_made:
                self._note_obstacle(placed, record, extent, plan)
                return _move_of(placed, record, extent, plan, changes)
            if outcome.is_refused:
                refusing.update(outcome.refusing)  # Other nodes may accept the copies.
                why_refused = outcome.why
                continue
            attempts_left -= 1
            if not (outcome.is_overtaken and attempts_left):
                self._note(placed, record, index, outcome.why, may_pass=outcome.may_pass)
                return None
            await self._see()
        return None

    async def _make(
        self, read: VersionedLedger, extent: FragmentExtent, changes: Mapping[int, Member]
    ) -> ChangeOutcome:
        before = [member.location.region for member in extent.fragment.ensemble]
        after = list(before)
        for slot, member in changes.items():
            after[slot] = member.location.region
        if not keeps_ack_sets(read.record.quorum, before, after):
            return ChangeOutcome(
                why=f"the policy's choice, {' '.join(after)}, has no ack set"
                f" ({read.record.quorum})",
                may_pass=False,
            )
        return await self._change.make(
            read,
            extent,
            changes,
            answering=self._around.answering,
            given_up={one.instance for one in self._around.replaced},
        )

    def _members_of(self, plan: FragmentPlan) -> dict[int, Member]:
        return {
            slot: self._around.cluster.member(instance)
            for slot, instance in plan.changes.items()
        }

    def _note_obstacle(
        self,
        placed: PlacedSegment,
        record: LedgerRecord,
        extent: FragmentExtent,
        plan: FragmentPlan,
    ) -> None:
        """Note what remains after everything possible was done."""
        if plan.obstacle:
            after = plan.after if plan.changes else None
            self._note(placed, record, extent.index, plan.obstacle, may_pass=False, after=after)

    def _note(
        self,
        placed: PlacedSegment,
        record: LedgerRecord,
        index: int,
        why: str,
        *,
        may_pass: bool,
        after: Adherence | None = None,
    ) -> None:
        """Note what remains of a fragment; `after`: its adherence if it was changed."""
        fragment = record.fragments[index]
        adherence = after or judge_fragment(self._seen, record, fragment).placed
        self.report.note(
            FragmentRemaining(
                stream=str(placed.partition.stream),
                partition=placed.partition.number,
                segment=placed.segment.segment,
                ledger=record.ledger,
                fragment=index,
                adherence=adherence.value,
                why=why,
                may_pass=may_pass,
            )
        )


def _extent_at(record: LedgerRecord, index: int) -> FragmentExtent | None:
    """The fragment if its entries are final; None if it belongs to its writer."""
    return next((one for one in final_extents(record) if one.index == index), None)


def _move_of(
    placed: PlacedSegment,
    record: LedgerRecord,
    extent: FragmentExtent,
    plan: FragmentPlan,
    changes: Mapping[int, Member],
) -> FragmentMove:
    ensemble = extent.fragment.ensemble
    return FragmentMove(
        stream=str(placed.partition.stream),
        partition=placed.partition.number,
        segment=placed.segment.segment,
        ledger=record.ledger,
        fragment=extent.index,
        first_entry=extent.fragment.first_entry,
        last_entry=extent.last,
        before=plan.placed.value,
        after=plan.after.value,
        slots=[
            SlotMove(
                slot=slot,
                from_node=ensemble[slot].node_id,
                from_region=ensemble[slot].location.region,
                to_node=member.node_id,
                to_region=member.location.region,
            )
            for slot, member in sorted(changes.items())
        ],
        bytes_about=_bytes_about(placed, record, extent, len(changes)),
    )


def _bytes_about(
    placed: PlacedSegment, record: LedgerRecord, extent: FragmentExtent, slots_count: int
) -> int | None:
    """The fragment's share of the segment's bytes, for this many slots."""
    size_bytes, last_entry = placed.segment.size_bytes, record.last_entry
    if size_bytes is None or last_entry is None or last_entry < 0:
        return None
    quorum = record.quorum
    share = extent.count * slots_count * quorum.write_quorum
    return size_bytes * share // ((last_entry + 1) * quorum.ensemble_size)
