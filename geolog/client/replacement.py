"""Replacing a node whose disk is lost: its copies come from its peers, to another node.

Order. The old instance is given up in metadata, for good: its disk never starts again, and an
empty one may take its node id. Then, ledger by ledger and fragment by fragment, the successor
gets all copies that the old instance should have; it is asked whether it has them; and only
then it takes the old one's slot, by one compare-and-set of the ledger's record. So at each
moment every record of a ledger is true, and whoever is interrupted begins again where it
stopped: what was copied is there, what was changed is done.

The last fragment of a ledger that is not CLOSED is its writer's, or recovery's. The writer
gives the slot away itself when it can (an ensemble change), and the segment's end closes it.
"""

from collections.abc import Callable

import attrs
import trio

from geolog.client.cluster_access import ClusterAccess
from geolog.client.node_lookup import node_named, unknown_node
from geolog.ledger.copier import Copier, CopyConfig, CopyProgress
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.replaced_nodes import (
    NodeRunsError,
    ReplacedNode,
    UnknownNodeError,
    list_replaced_nodes,
    mark_done,
    mark_replaced,
)
from geolog.metadata.seam import BadVersionError
from geolog.protocol.copying import FragmentExtent, final_extents, with_extent, with_member
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState, Member
from topology.errors import GeologError, InvalidArgumentError, OutcomeUnknownError
from topology.placement import Adherence, adherence_of

_ATTEMPTS_MAX = 3
"""How often a ledger is tried whose nodes do not answer."""

LOOK_EVERY_S = 1.0
"""Pause before a successor that is not up, or ledgers that are open, are looked at again."""


@attrs.frozen(kw_only=True)
class LedgerRemaining:
    """A ledger that still has the old instance as a member, and why."""

    ledger: int
    stream: str
    state: str
    why: str
    may_pass: bool
    """Whether time may heal it: nodes that are away, a writer that has not changed members."""


@attrs.define(kw_only=True)
class ReplaceReport:
    """What came of a replacement."""

    node_id: str
    instances: list[str]
    """The instances that were given up and had not been replaced altogether."""
    successor: str | None = None
    """Who takes its place; None when there was no place to take."""
    successor_instance: str | None = None
    ledgers: int = 0
    """Ledgers that had the old instance as a member."""
    fragments_changed: int = 0
    copies_stored: int = 0
    bytes_stored: int = 0
    warnings: list[str] = attrs.field(factory=list)
    remaining: list[LedgerRemaining] = attrs.field(factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no ledger has the old instance as a member any more."""
        return not self.remaining


@attrs.frozen(kw_only=True)
class ReplaceTold:
    """How far a replacement is."""

    ledgers_done: int
    ledgers_count: int
    copied: CopyProgress


class NodeReplacer:
    """Replaces one node by another, or by itself with an empty disk."""

    def __init__(
        self,
        access: ClusterAccess,
        config: CopyConfig,
        *,
        on_progress: Callable[[ReplaceTold], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self._access = access
        self._on_progress = on_progress
        self._on_note = on_note
        self._copier = Copier(
            access.pool,
            region=access.region,
            config=config,
            on_progress=lambda _: self._tell(),
        )
        self._ledgers_done = 0
        self._ledgers_count = 0

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                ReplaceTold(
                    ledgers_done=self._ledgers_done,
                    ledgers_count=self._ledgers_count,
                    copied=self._copier.progress,
                )
            )

    def _note(self, note: str) -> None:
        if self._on_note is not None:
            self._on_note(note)

    async def replace(
        self, node_id: str, *, successor_id: str | None = None, is_waiting: bool = False
    ) -> ReplaceReport:
        """Replace `node_id` by `successor_id`, or by the empty disk that takes its id.

        Waits for that to be up; with `is_waiting` also until no open ledger has the old
        instance as a member: the caller bounds both. NodeRunsError, UnknownNodeError,
        InvalidArgumentError; nothing is changed then.
        """
        if successor_id is not None:
            await self._check_successor(node_id, successor_id)
        given_up = await self._give_up(node_id)
        instances = {replaced.instance for replaced in given_up}
        report = ReplaceReport(node_id=node_id, instances=sorted(instances))
        if await self._access.catalog.with_member(instances):
            successor = await self._wait_successor(given_up[-1], successor_id or node_id)
            report.successor = successor.node_id
            report.successor_instance = successor.instance
            await self._move_all(instances, successor, report)
            while is_waiting and any(one.may_pass for one in report.remaining):
                await trio.sleep(LOOK_EVERY_S)
                await self._move_all(instances, successor, report)
        if report.is_complete:
            for replaced in given_up:
                await mark_done(self._access.metadata, self._access.cluster, replaced)
        return report

    async def _check_successor(self, node_id: str, successor_id: str) -> None:
        if successor_id == node_id:
            raise InvalidArgumentError(
                f"{node_id} cannot be replaced by itself: for an empty disk under the same id"
                " name no successor, and start it"
            )
        node_named(successor_id, await self._known())
        live = await list_live_nodes(self._access.metadata, self._access.cluster)
        state = next((one.state for one in live if one.node_id == successor_id), None)
        if state is None:
            raise InvalidArgumentError(
                f"node {successor_id} is down: a node that is up takes the place of {node_id}"
            )

    async def _give_up(self, node_id: str) -> list[ReplacedNode]:
        """The instances of that id that are to be replaced; the newest is last."""
        access = self._access
        newest = None
        if any(one.node_id == node_id for one in await self._known()):
            try:
                newest = await mark_replaced(access.metadata, access.cluster, node_id)
            except NodeRunsError:
                if not await self._unfinished(node_id):
                    raise
                # It runs on an empty disk, and its predecessor's copies are not all there yet.
                self._note(f"going on with the replacement of {node_id}")
            except UnknownNodeError:
                pass  # Another who replaces it was quicker.
        unfinished = await self._unfinished(node_id)
        if newest is not None:
            return [*(one for one in unfinished if one != newest), newest]
        replaced = await list_replaced_nodes(access.metadata, access.cluster)
        given_up = unfinished or [one for one in replaced if one.node_id == node_id]
        if not given_up:
            raise unknown_node(node_id, [one.node_id for one in await self._known()])
        return given_up

    async def _known(self) -> list[NodeRecord]:
        return await list_known_nodes(self._access.metadata, self._access.cluster)

    async def _unfinished(self, node_id: str) -> list[ReplacedNode]:
        replaced = await list_replaced_nodes(self._access.metadata, self._access.cluster)
        return [one for one in replaced if one.node_id == node_id and not one.is_done]

    async def _wait_successor(self, replaced: ReplacedNode, successor_id: str) -> NodeRecord:
        is_told = False
        while True:
            for node in await self._access.pool.live_nodes():
                if node.node_id == successor_id and node.instance != replaced.instance:
                    return node
            if not is_told:
                is_told = True
                self._note(
                    f"waiting for node {successor_id} to be up: start it with an empty data"
                    f" directory (geolog serve storage --node-id {replaced.node_id} --location"
                    f" {replaced.location} --listen {replaced.address} --data-dir ...)"
                )
            await trio.sleep(LOOK_EVERY_S)

    async def _move_all(
        self, instances: set[InstanceId], successor: NodeRecord, report: ReplaceReport
    ) -> None:
        """Do what can be done now in all ledgers; `report.remaining` is what cannot."""
        ledgers = await self._access.catalog.with_member(instances)
        report.ledgers = max(report.ledgers, len(ledgers))
        report.remaining = []
        self._ledgers_done, self._ledgers_count = 0, len(ledgers)
        for listed in ledgers:
            move = _LedgerMove(self._access, self._copier, listed.ledger, instances, successor)
            remaining = await move.run()
            report.fragments_changed += move.fragments_changed
            report.warnings += [one for one in move.warnings if one not in report.warnings]
            if remaining is not None:
                report.remaining.append(remaining)
            self._ledgers_done += 1
            self._tell()
        report.copies_stored = self._copier.progress.copies_stored
        report.bytes_stored = self._copier.progress.bytes_stored


@attrs.frozen
class _Hindrance:
    """Why a fragment cannot be moved now."""

    why: str
    may_pass: bool = False


class _LedgerMove:
    """The move of one ledger's slots from old instances to their successor."""

    def __init__(
        self,
        access: ClusterAccess,
        copier: Copier,
        ledger: LedgerId,
        gone: set[InstanceId],
        successor: NodeRecord,
    ) -> None:
        self._access = access
        self._copier = copier
        self._ledger = ledger
        self._gone = gone
        self._new = Member(successor.instance, successor.node_id, successor.location)
        self.fragments_changed = 0
        self.warnings: list[str] = []

    async def run(self) -> LedgerRemaining | None:
        """Move what can be moved; what remains then, if anything does."""
        try:
            read, hindrances = await self._move_fragments()
            for _ in range(_ATTEMPTS_MAX - 1):
                if not any(one.may_pass for one in hindrances.values()):
                    break
                await trio.sleep(LOOK_EVERY_S)  # A link may rest, a node be just starting.
                read, hindrances = await self._move_fragments()
        except NoSuchLedgerError:
            return None  # It was deleted.
        return self._remaining(read.record, hindrances)

    async def _move_fragments(self) -> tuple[VersionedLedger, dict[int, _Hindrance]]:
        """Go over all final fragments; the record after that, and what hinders, by fragment."""
        hindrances: dict[int, _Hindrance] = {}
        while True:
            read = await self._access.ledgers.read_latest(self._ledger)
            extent = next(
                (
                    one
                    for one in final_extents(read.record)
                    if one.index not in hindrances and self._slot_in(one) is not None
                ),
                None,
            )
            if extent is None:
                return read, hindrances
            hindrance = await self._move(read, extent)
            if hindrance is not None:
                hindrances[extent.index] = hindrance

    def _slot_in(self, extent: FragmentExtent) -> int | None:
        """The first slot of an old instance in the fragment."""
        slots = [extent.slot_of(instance) for instance in self._gone]
        return min((slot for slot in slots if slot is not None), default=None)

    def _remaining(
        self, record: LedgerRecord, hindrances: dict[int, _Hindrance]
    ) -> LedgerRemaining | None:
        last_members = {member.instance for member in record.fragments[-1].ensemble}
        is_open = record.state is not LedgerState.CLOSED and bool(last_members & self._gone)
        if not hindrances and not is_open:
            return None
        whys = [f"fragment {index}: {one.why}" for index, one in sorted(hindrances.items())]
        if is_open:
            whys.append(
                f"its last fragment is {record.state.value}: its writer gives the slot away, or"
                " the segment's end closes it; `geolog ledger recover"
                f" {record.ledger}` ends it now"
            )
        return LedgerRemaining(
            ledger=record.ledger,
            stream=record.stream,
            state=record.state.value,
            why="; ".join(whys),
            may_pass=all(one.may_pass for one in hindrances.values()),
        )

    async def _move(self, read: VersionedLedger, extent: FragmentExtent) -> _Hindrance | None:
        """Move one slot of one fragment; what hinders it, if it is not possible now."""
        slot = self._slot_in(extent)
        assert slot is not None
        gone = extent.fragment.ensemble[slot].instance
        if extent.slot_of(self._new.instance) is not None:
            return _Hindrance(
                f"node {self._new.node_id} is a member already: name another by --with NODE_ID"
            )
        changed = with_member(extent, gone, self._new)
        hindrance = self._judge_placement(read.record, extent, changed)
        if hindrance is not None:
            return hindrance
        outcome = await self._copier.copy(read.record, changed, [slot])
        why = outcome.why_incomplete(slot)
        if why is not None:
            if await self._access.ledgers.read_latest(self._ledger) != read:
                return None  # Others changed it: it is looked at again.
            return _Hindrance(why, may_pass=not outcome.lost_count)
        if await self._store(read, extent, changed):
            self.fragments_changed += 1
            await self._look_again(read.record, changed, slot)
        return None

    def _judge_placement(
        self, record: LedgerRecord, before: FragmentExtent, after: FragmentExtent
    ) -> _Hindrance | None:
        """Note a placement that gets worse; refuse one that does not hold an ack set."""
        was, will_be = _adherence(record, before), _adherence(record, after)
        if will_be is Adherence.FAIL and was is not Adherence.FAIL:
            return _Hindrance(
                f"with node {self._new.node_id}, of {self._new.location.region}, it would not"
                " span enough regions: name another by --with NODE_ID"
            )
        if will_be is Adherence.SOFT and was is Adherence.STRICT:
            self.warnings.append(
                f"ledger {record.ledger}: with node {self._new.node_id}, of"
                f" {self._new.location.region}, fragment {before.index} would not keep an ack"
                " set without any one region"
            )
        return None

    async def _store(
        self, read: VersionedLedger, before: FragmentExtent, after: FragmentExtent
    ) -> bool:
        """Put the member in its slot; False if others changed the fragment meanwhile."""
        while True:
            if before not in final_extents(read.record):
                return False
            try:
                await self._access.ledgers.replace(read, with_extent(read.record, after))
            except (BadVersionError, OutcomeUnknownError):
                try:
                    read = await self._access.ledgers.read_latest(self._ledger)
                except NoSuchLedgerError:
                    return False
                if after in final_extents(read.record):
                    return True  # It was stored; only the answer was lost.
                continue
            return True

    async def _look_again(
        self, record: LedgerRecord, extent: FragmentExtent, slot: int
    ) -> None:
        """Ask the new member once more; whatever it lacks now goes to the repair queue."""
        try:
            lacking_count = await self._copier.lacks_count(record, extent, slot)
        except GeologError as error:
            complaint = str(error)
        else:
            if not lacking_count:
                return
            complaint = f"it lacks {lacking_count} entries"
        self.warnings.append(
            f"ledger {record.ledger}: node {self._new.node_id} had all copies, and then"
            f" {complaint}; it is in the repair queue (`geolog ledger repair --queue`)"
        )
        await self._access.repair_queue.enqueue(record.ledger, RepairReason.COPIES_MISSING)


def _adherence(record: LedgerRecord, extent: FragmentExtent) -> Adherence:
    regions = [member.location.region for member in extent.fragment.ensemble]
    return adherence_of(record.quorum, regions)
