"""Replacing a node whose disk is lost: another node gets its copies from their other members.

First the old instance is given up in metadata, for good: its disk never starts again, and an
empty disk may take its node id. Then, ledger by ledger and fragment by fragment, the successor
gets every copy that the old instance should have, and confirms them. Only then does it take
the old instance's slot, by one compare-and-set of the ledger's record. So every record is true
at every moment. Re-run an interrupted replacement; it goes on where it stopped.

The last fragment of a ledger that is not CLOSED belongs to its writer, or to its recovery. The
writer gives the slot away itself when it can (an ensemble change), and the end of the segment
closes the ledger.

Rules: PROTOCOL C12.
"""

from collections.abc import Callable

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.ledger_move import LedgerMove, LedgerRemaining
from geolog.admin.node_lookup import node_named, unknown_node
from geolog.ledger.copying.copier import Copier, CopyProgress
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.replaced_nodes import (
    NodeRunsError,
    ReplacedNode,
    UnknownNodeError,
    list_replaced_nodes,
    mark_replaced,
    note_moved,
)
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from topology.errors import InvalidArgumentError

_LOOK_EVERY_S = 1.0
"""Pause before looking again at a successor that is not up, or at ledgers that are open."""


@attrs.define(kw_only=True)
class ReplaceReport:
    """Outcome of a replacement."""

    node_id: str
    instances: list[str]
    """The instances that were given up and whose replacement was not complete before."""
    successor: str | None = None
    """The successor; None if there were no slots to take."""
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
    """Progress of a replacement."""

    ledgers_done: int
    ledgers_count: int
    copied: CopyProgress


class NodeReplacer:
    """Replaces a node by another, or by itself with an empty disk."""

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
            access.replicas,
            region=access.region,
            config=config,
            on_progress=lambda _: self._tell(),
        )
        self._ledgers_done = 0
        self._ledgers_count = 0
        self.waiting_for: str | None = None
        """The id of the node that the replacement is waiting for, if it is waiting."""

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

        Waits until the successor is up; with `is_waiting`, also until no open ledger has the
        old instance as a member. The caller bounds both waits. NodeRunsError, UnknownNodeError,
        InvalidArgumentError: nothing was changed.
        """
        if successor_id is not None:
            await self._check_successor(node_id, successor_id)
        given_up = await self._give_up(node_id)
        instances = {replaced.instance for replaced in given_up}
        report = ReplaceReport(node_id=node_id, instances=sorted(instances))
        if await self._holders_of(instances):
            successor = await self._wait_successor(given_up[-1], successor_id or node_id)
            report.successor = successor.node_id
            report.successor_instance = successor.instance
            await self._warn_of_forbidden(successor, report)
            await self._move_all(instances, successor, report)
            while is_waiting and any(one.may_pass for one in report.remaining):
                await trio.sleep(_LOOK_EVERY_S)
                await self._move_all(instances, successor, report)
        if report.is_complete:
            for instance in sorted(instances):
                await note_moved(self._access.metadata, self._access.cluster, instance)
        return report

    async def _check_successor(self, node_id: str, successor_id: str) -> None:
        if successor_id == node_id:
            raise InvalidArgumentError(
                f"{node_id} cannot replace itself; to keep this node, name no successor and"
                " start it on an empty disk"
            )
        node_named(successor_id, await self._known())
        live = await list_live_nodes(self._access.metadata, self._access.cluster)
        state = next((one.state for one in live if one.node_id == successor_id), None)
        if state is None:
            raise InvalidArgumentError(
                f"node {successor_id} is down; a successor of {node_id} must be up"
            )

    async def _warn_of_forbidden(self, successor: NodeRecord, report: ReplaceReport) -> None:
        """Warn if the successor is in a forbidden region; copies go there all the same."""
        switches = await read_switches(self._access.metadata, self._access.cluster)
        (placed,) = await self._access.pool.nodes.resolved([successor])
        region = placed.location.region
        if region in switches.forbidden_regions:
            report.warnings.append(
                f"node {successor.node_id} is in {region}, where placement is forbidden;"
                " `geolog placement repair --leave-forbidden` moves its copies elsewhere,"
                f" `geolog region allow-placement {region}` allows them"
            )

    async def _give_up(self, node_id: str) -> list[ReplacedNode]:
        """The instances of this node id to be replaced; the newest is last."""
        access = self._access
        newest = None
        if any(one.node_id == node_id for one in await self._known()):
            try:
                newest = await mark_replaced(access.metadata, access.cluster, node_id)
                self._note(f"the old disk of {node_id} is given up; it will never start again")
            except NodeRunsError:
                if not await self._unfinished(node_id):
                    raise
                # The node runs on an empty disk, and lacks copies of its predecessor's.
                self._note(f"going on with the replacement of {node_id}")
            except UnknownNodeError:
                pass  # Another process has given it up already.
        given_up = [one for one in await self._unfinished(node_id) if one != newest]
        if newest is not None:
            given_up.append(newest)
        return given_up or await self._finished(node_id)

    async def _unfinished(self, node_id: str) -> list[ReplacedNode]:
        """Instances of this id that were given up, and that ledgers still have as members."""
        return [
            one
            for one in await self._replaced(node_id)
            if await self._holders_of({one.instance})
        ]

    async def _finished(self, node_id: str) -> list[ReplacedNode]:
        """Those that no ledger has as a member. UnknownNodeError if the id never existed."""
        replaced = await self._replaced(node_id)
        if not replaced:
            raise unknown_node(node_id, [one.node_id for one in await self._known()])
        return replaced

    async def _replaced(self, node_id: str) -> list[ReplacedNode]:
        replaced = await list_replaced_nodes(self._access.metadata, self._access.cluster)
        return [one for one in replaced if one.node_id == node_id]

    async def _holders_of(self, instances: set[InstanceId]) -> list[LedgerRecord]:
        """Ledgers with such a member, except those made ahead: their writers replace them."""
        return [
            record
            for record in await self._access.catalog.with_member(instances)
            if record.state is not LedgerState.ALLOCATED
        ]

    async def _known(self) -> list[NodeRecord]:
        return await list_known_nodes(self._access.metadata, self._access.cluster)

    async def _wait_successor(self, replaced: ReplacedNode, successor_id: str) -> NodeRecord:
        while True:
            for node in await self._access.pool.live_nodes():
                if node.node_id == successor_id and node.instance != replaced.instance:
                    self.waiting_for = None
                    return node
            if self.waiting_for is None:
                self.waiting_for = successor_id
                self._note(
                    f"waiting for node {successor_id}: start it with an empty data directory"
                    f" (geolog serve storage --node-id {replaced.node_id} --location"
                    f" {replaced.location} --listen {replaced.address} --data-dir ...)"
                )
            await trio.sleep(_LOOK_EVERY_S)

    async def _move_all(
        self, instances: set[InstanceId], successor: NodeRecord, report: ReplaceReport
    ) -> None:
        """Move everything that can be moved now; the rest goes into `report.remaining`."""
        ledgers = await self._holders_of(instances)
        report.ledgers = max(report.ledgers, len(ledgers))
        report.remaining = []
        self._ledgers_done, self._ledgers_count = 0, len(ledgers)
        for listed in ledgers:
            move = LedgerMove(self._access, self._copier, listed.ledger, instances, successor)
            remaining = await move.run()
            report.fragments_changed += move.fragments_changed
            report.warnings += [one for one in move.warnings if one not in report.warnings]
            if remaining is not None:
                report.remaining.append(remaining)
            self._ledgers_done += 1
            self._tell()
        report.copies_stored = self._copier.progress.copies_stored
        report.bytes_stored = self._copier.progress.bytes_stored
