"""Giving slots of one fragment to other members: copy first, then change the record.

The record is first given a note of the nodes that are being copied to, so that their copies do
not count as garbage, however long the copier pauses. A node that is to take a slot gets every
copy that belongs there, and confirms them. Only then does it become a member, by one
compare-and-set of the record. Members that give up their slots serve as sources for as long as
they answer. So the record is true at every moment and no copy that counts is given up. Re-run
an interrupted change; it finds what was copied.

A slot that goes to another region takes its copy out of the old one. So the members that stay
must then have all of their copies, as far as ack sets need them; what they lack is copied
first.

Rules: PROTOCOL C3 and C4.
"""

from collections.abc import Collection, Mapping, Set
from contextlib import suppress

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.copying.copier import Copier
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.protocol.copying import FragmentExtent, final_extents, with_extent, with_ring
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.placement_plan import keeps_each_ack_set
from topology.errors import GeologError, OutcomeUnknownError, UnavailableError


@attrs.frozen(kw_only=True)
class ChangeOutcome:
    """Outcome of a change."""

    is_made: bool = False
    is_overtaken: bool = False
    """Whether another process changed or deleted the ledger meanwhile: read it again."""
    why: str = ""
    """The reason why the change was not made; empty if it was."""
    refusing: tuple[InstanceId, ...] = ()
    """New members that refuse the copies for good: name others."""
    may_pass: bool = True
    """Whether trying again later may help."""
    warnings: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether a new member refuses the copies for good."""
        return bool(self.refusing)


_OVERTAKEN = ChangeOutcome(is_overtaken=True, why="others changed the ledger meanwhile")


@attrs.frozen
class FragmentChange:
    """Changes fragments of the ledgers of one cluster."""

    _access: ClusterAccess
    _copier: Copier

    async def make(
        self,
        read: VersionedLedger,
        extent: FragmentExtent,
        changes: Mapping[int, Member],
        *,
        answering: Collection[InstanceId],
        given_up: Collection[InstanceId],
    ) -> ChangeOutcome:
        """Give these slots of a fragment to these members.

        `answering`: nodes that are up; `given_up`: nodes whose copies will never come back.
        """
        ring = [
            changes.get(slot, member) for slot, member in enumerate(extent.fragment.ensemble)
        ]
        after = with_ring(extent, ring, answering=answering)
        arriving = [member.instance for member in changes.values()]
        announced = await self._announce(read, extent, arriving)
        if announced is None:
            return _OVERTAKEN
        read = announced
        outcome = await self._copier.copy(read.record, after, changes)
        whys = {slot: outcome.why_incomplete(slot) for slot in changes}
        failed = [f"node {changes[slot].node_id}: {why}" for slot, why in whys.items() if why]
        if failed:
            refusing = tuple(
                changes[slot].instance for slot in changes if slot in outcome.never
            )
            if refusing:
                await self._withdraw(read.record.ledger, arriving)
            return ChangeOutcome(
                is_overtaken=await self._is_changed(read),
                why="; ".join(failed),
                refusing=refusing,
                may_pass=not (refusing or outcome.lost_count),
            )
        why = await self._why_thinner(read.record, extent, after, given_up)
        if why:
            return ChangeOutcome(is_overtaken=await self._is_changed(read), why=why)
        if not await self._store(read, extent, after):
            await self._withdraw(read.record.ledger, arriving)
            return _OVERTAKEN
        warnings = [
            warning
            for slot in changes
            for warning in await self._look_again(read.record, after, slot)
        ]
        return ChangeOutcome(is_made=True, warnings=tuple(warnings))

    async def _why_thinner(
        self,
        record: LedgerRecord,
        before: FragmentExtent,
        after: FragmentExtent,
        given_up: Collection[InstanceId],
    ) -> str:
        """Why an entry would lose its ack set, even after the members that stay got copies."""
        complete = set(_new_slots(before, after))
        if not any(_takes_away(before, after, slot, given_up) for slot in complete):
            return ""
        if _keeps_each(record, before, after, complete):
            return ""
        staying = [slot for slot in range(len(after.fragment.ensemble)) if slot not in complete]
        outcome = await self._copier.copy(record, after, staying)
        whys = {slot: outcome.why_incomplete(slot) for slot in staying}
        complete.update(slot for slot, why in whys.items() if not why)
        if _keeps_each(record, before, after, complete):
            return ""
        lacking = "; ".join(
            f"node {after.fragment.ensemble[slot].node_id}: {why}"
            for slot, why in whys.items()
            if why
        )
        return f"entries would be in too few regions until these have all copies: {lacking}"

    async def _announce(
        self, read: VersionedLedger, extent: FragmentExtent, instances: Collection[InstanceId]
    ) -> VersionedLedger | None:
        """Note the nodes that are being copied to; None if the fragment has changed."""
        while extent in final_extents(read.record):
            announcing = read.record.with_arriving(instances)
            if announcing == read.record:
                return read  # An interrupted change noted them, or another does the same.
            try:
                return await self._access.ledgers.replace(read, announcing)
            except (BadVersionError, NoNodeError, OutcomeUnknownError):
                try:
                    read = await self._access.ledgers.read_latest(read.record.ledger)
                except NoSuchLedgerError:
                    return None
        return None

    async def _withdraw(self, ledger: LedgerId, instances: Collection[InstanceId]) -> None:
        """Remove the note about these; if the record changes meanwhile, the note stays.

        Another process that copies to one of them adds its note again before that node becomes
        a member.
        """
        with suppress(BadVersionError, NoNodeError, NoSuchLedgerError, OutcomeUnknownError):
            read = await self._access.ledgers.read_latest(ledger)
            left = read.record.without_arriving(instances)
            if left != read.record:
                await self._access.ledgers.replace(read, left)

    async def _is_changed(self, read: VersionedLedger) -> bool:
        try:
            return await self._access.ledgers.read_latest(read.record.ledger) != read
        except NoSuchLedgerError:
            return True

    async def _store(
        self, read: VersionedLedger, before: FragmentExtent, after: FragmentExtent
    ) -> bool:
        """Put the members into their slots; False if the fragment has changed.

        False also if the note about them is gone: their copies may then be gone too.
        """
        arriving = {one.instance for one in after.fragment.ensemble}
        arriving -= {one.instance for one in before.fragment.ensemble}
        while before in final_extents(read.record) and _are_kept(read.record, arriving):
            try:
                await self._access.ledgers.replace(read, with_extent(read.record, after))
            except (BadVersionError, NoNodeError, OutcomeUnknownError):
                try:
                    read = await self._access.ledgers.read_latest(read.record.ledger)
                except NoSuchLedgerError:
                    return False
                if after in final_extents(read.record):
                    return True  # It was stored; only the answer was lost.
                if not await self._have_all(read.record, before, after):
                    return False  # The note may have been another process's: check the copies.
                continue
            return True
        return False

    async def _have_all(
        self, record: LedgerRecord, before: FragmentExtent, after: FragmentExtent
    ) -> bool:
        """Whether the new members still report every copy that belongs in their slots."""
        try:
            counts = [
                await self._copier.lacks_count(record, after, slot)
                for slot in _new_slots(before, after)
            ]
        except UnavailableError:
            return False
        return not any(counts)

    async def _look_again(
        self, record: LedgerRecord, extent: FragmentExtent, slot: int
    ) -> list[str]:
        """Ask a new member again; whatever it lacks now goes into the repair queue."""
        try:
            lacking_count = await self._copier.lacks_count(record, extent, slot)
        except GeologError as error:
            complaint = str(error)
        else:
            if not lacking_count:
                return []
            complaint = f"it lacks {lacking_count} entries"
        await self._access.repair_queue.enqueue(record.ledger, RepairReason.COPIES_MISSING)
        return [
            f"ledger {record.ledger}: node {extent.fragment.ensemble[slot].node_id} had all"
            f" copies, but now {complaint}; queued for repair (`geolog ledger repair"
            " --queue`)"
        ]


def _are_kept(record: LedgerRecord, instances: Collection[InstanceId]) -> bool:
    """Whether the copies that these instances hold of the ledger are not garbage."""
    members = {one.instance for each in record.fragments for one in each.ensemble}
    return members.union(record.arriving).issuperset(instances)


def _new_slots(before: FragmentExtent, after: FragmentExtent) -> list[int]:
    pairs = zip(before.fragment.ensemble, after.fragment.ensemble, strict=True)
    return [slot for slot, (old, new) in enumerate(pairs) if old.instance != new.instance]


def _takes_away(
    before: FragmentExtent, after: FragmentExtent, slot: int, given_up: Collection[InstanceId]
) -> bool:
    """Whether a region loses a copy that counts."""
    old, new = before.fragment.ensemble[slot], after.fragment.ensemble[slot]
    return old.location.region != new.location.region and old.instance not in given_up


def _keeps_each(
    record: LedgerRecord, before: FragmentExtent, after: FragmentExtent, complete: Set[int]
) -> bool:
    return keeps_each_ack_set(
        record.quorum,
        [member.location.region for member in before.fragment.ensemble],
        [member.location.region for member in after.fragment.ensemble],
        sum(1 << slot for slot in complete),
    )
