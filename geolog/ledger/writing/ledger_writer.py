"""The shell around the add window of one ledger: sends entries, and reports to its listener.

It decides nothing about acknowledgement; `geolog.protocol.add_window` does. It keeps
unacknowledged entries, to send them again to a member that comes back or to one that takes over
its slot. If the ledger must end, its owner writes their batches again to the next ledger.

Rules: PROTOCOL Q5, W3 and W11.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

import trio

from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.writing.ensemble_links import EnsembleLinks, make_known
from geolog.protocol.add_window import AddWindow, AdvanceLac, SendAdd
from geolog.protocol.copy_tally import CopyTally, MissingCopies
from geolog.protocol.ensemble_policy import EnsembleView
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import AddRefused, Reason
from geolog.protocol.received_prefix import ReceivedPrefix
from geolog.wire.entry import EncodedEntry
from topology.errors import NotEnoughNodesError


class LedgerListener(Protocol):
    """Gets the outcomes of a ledger's entries. Called at once, in order."""

    def on_lac(self, lac: EntryId) -> None:
        """All entries up to here are acknowledged."""
        ...

    def on_received(self, through: EntryId) -> None:
        """All entries up to here are in memory of ack sets; called only if requested."""
        ...

    def on_fenced(self, writer: "LedgerWriter", why: str) -> None:
        """The ledger was taken over: nothing more will be acknowledged here."""
        ...

    def on_stuck(self, entry: EntryId, why: str) -> None:
        """The entry cannot reach an ack set with the members that answer now."""
        ...


class LedgerWriter:
    """Writes one ledger under one epoch.

    Invariants: `_unacknowledged` holds exactly the entries above the window's LAC, in order; a
    slot that is not up is lost in the window; a slot in `_held_from` was sent nothing from that
    entry up, because its connection has no room; `record.fragments[-1]` is the ensemble that
    the window counts by.
    """

    def __init__(
        self,
        pool: NodePool,
        record: LedgerRecord,
        listener: LedgerListener,
        *,
        nursery: trio.Nursery,
        lac: EntryId,
        is_recovery: bool = False,
        wants_received: bool = False,
        known_over: Mapping[InstanceId, NodeConnection] | None = None,
    ) -> None:
        """known_over: connections over which members already know the ledger."""
        self.record = record
        self._pool = pool
        self._listener = listener
        self._is_recovery = is_recovery
        self._lac_at_start = lac
        rule = self.fragment.rule(record.quorum)
        self._window = AddWindow(rule, lac=lac)
        self._copies = CopyTally(rule, first=EntryId(lac + 1))
        self._received = ReceivedPrefix(rule, lac=lac) if wants_received else None
        self._held_from: dict[int, EntryId] = {}
        self._unacknowledged: deque[EncodedEntry] = deque()
        self._oldest_since_s = 0.0
        self._lac_sent = lac
        self._is_over = False
        self._is_stuck = False
        self._copy_confirmed = trio.Event()
        self._links = EnsembleLinks(
            pool,
            self.fragment.ensemble,
            self._make_known,
            self,
            nursery=nursery,
            known_over=known_over or {},
        )
        for slot in range(len(self.fragment.ensemble)):
            self._window.on_slot_lost(slot)  # Until its member is connected.

    def __repr__(self) -> str:
        return (
            f"LedgerWriter(ledger {self.record.ledger}, epoch {self.record.epoch}, lac"
            f" {self.lac}, {len(self._unacknowledged)} in flight, slots"
            f" {self._links.slots_up} up)"
        )

    @property
    def fragment(self) -> Fragment:
        """The fragment being written."""
        return self.record.fragments[-1]

    @property
    def lac(self) -> EntryId:
        """Last add confirmed."""
        return self._window.lac

    @property
    def entry_next(self) -> EntryId:
        """The number that the next entry gets."""
        return self._window.entry_next

    @property
    def is_over(self) -> bool:
        """Whether it was stopped or fenced."""
        return self._is_over

    @property
    def is_closed(self) -> bool:
        """Whether it has also dropped its members."""
        return self._links.is_closed

    async def open(self, *, patience_s: float) -> None:
        """Connect to the members, and make the ledger known to them.

        Returns once every write set has an ack set among the members that are up, and each
        other member has failed or `patience_s` is over; NotEnoughNodesError if there is no ack
        set.
        """
        self._links.open()
        await self.wait_members(patience_s=patience_s)
        if not self._window.can_go_on():
            error = NotEnoughNodesError(
                f"ledger {self.record.ledger} cannot be written: no answer from"
                f" {self.describe_away()}"
            )
            self.close()
            raise error

    def open_nowait(self) -> None:
        """Start connecting to the members."""
        self._links.open()

    async def wait_members(self, *, patience_s: float) -> None:
        """Wait until each member is up or has failed, and every write set has an ack set."""
        with trio.move_on_after(patience_s):
            while not (self._links.has_heard_of_all() and self._window.can_go_on()):
                await self._links.wait_change()

    def describe_away(self) -> str:
        """The members that are not up, with reasons, for people."""
        return self._links.describe_away()

    def add_nowait(self, encoded: EncodedEntry) -> EntryId:
        """Send the next entry to its write set; its outcome goes to the listener."""
        assert not self._is_over, "the ledger is no longer written"
        effects = self._window.push()
        entry = EntryId(self._window.entry_next - 1)
        if self._received is not None:
            self._received.push()
        if not self._unacknowledged:
            self._oldest_since_s = trio.current_time()
        self._unacknowledged.append(encoded)
        for effect in effects:
            self._send(effect)
        if not self._is_recovery:
            self._lac_sent = self._window.lac
        return entry

    def stop(self) -> None:
        """Send and acknowledge nothing more; until `close`, confirmed copies still count."""
        self._is_over = True

    def close(self) -> None:
        """Send nothing more, and ignore all further answers."""
        self._is_over = True
        self._links.close()
        self._copy_confirmed.set()

    # State of the members.

    def can_go_on(self) -> bool:
        """Whether every further entry can reach an ack set with the members that are up."""
        return not self._is_over and self._window.can_go_on()

    def could_go_on_with(self, fragment: Fragment) -> bool:
        """Whether the ledger could go on with this fragment, if its new members are up.

        New members count in their own regions, not in those of the members they replace.
        """
        new = self.fragment.slots_changed(fragment)
        up = sum(1 << slot for slot in {*self._links.slots_up, *new})
        return fragment.rule(self.record.quorum).acks_all(up)

    def check_helps(self, fragment: Fragment) -> None:
        """Raise NotEnoughNodesError unless the ledger could go on with this fragment."""
        if self.could_go_on_with(fragment):
            return
        quorum, new = self.record.quorum, self.fragment.slots_changed(fragment)
        up = [fragment.ensemble[slot] for slot in sorted({*self._links.slots_up, *new})]
        would_be_up = ", ".join(f"{one.node_id} ({one.location.region})" for one in up)
        raise NotEnoughNodesError(
            f"ledger {self.record.ledger} cannot continue: each write set needs"
            f" {quorum.ack_quorum} members up in {quorum.min_regions} regions, but even with"
            f" the {len(new)} new members only {would_be_up} would be up: start the others, or"
            " add nodes"
        )

    def instances(self) -> set[InstanceId]:
        """Instance ids of the members."""
        return {member.instance for member in self.fragment.ensemble}

    def instances_missing(self) -> list[InstanceId]:
        """Members that are not up, so that entries have fewer copies than they could."""
        return self._links.instances_away()

    def instances_late(self) -> list[InstanceId]:
        """Members that hold back the oldest entry in flight."""
        return [self.fragment.ensemble[slot].instance for slot in self._window.slots_late()]

    def is_stuck(self) -> bool:
        """Whether an entry in flight cannot reach an ack set with the members that are up."""
        return not self._is_over and self._window.first_stuck() is not None

    def is_late(self, add_timeout_s: float) -> bool:
        """Whether the oldest entry in flight has waited for longer than `add_timeout_s`."""
        return bool(self._unacknowledged) and (
            trio.current_time() - self._oldest_since_s > add_timeout_s
        )

    def slots_away(self) -> list[int]:
        """Slots of members that are not up."""
        return sorted(self._links.away_since_s)

    def view(self, add_timeout_s: float) -> EnsembleView:
        """The input of the ensemble policy."""
        return EnsembleView(
            away_since_s=dict(self._links.away_since_s),
            is_stuck=self.is_stuck(),
            is_late=self.is_late(add_timeout_s),
            slots_late=self._window.slots_late(),
        )

    # Ensemble changes.

    def hold(self, slots: Iterable[int]) -> None:
        """Stop counting confirmations of these slots until the change is decided."""
        self._window.hold(slots)

    def unhold(self) -> None:
        """The change surely did not happen: count held slots again."""
        self._advance(self._window.unhold())

    def change(
        self, record: LedgerRecord, known_over: Mapping[InstanceId, NodeConnection]
    ) -> None:
        """Switch to another last fragment; the slots whose members change must be held.

        New members are sent what they lack as soon as they are up. `known_over`: connections
        over which some of them already know the ledger.
        """
        new = record.fragments[-1]
        slots = self.fragment.slots_changed(new)
        self.record = record
        rule = new.rule(record.quorum)
        for slot in slots:
            self._held_from.pop(slot, None)
            self._copies.on_replaced(slot, new.first_entry)
        if self._received is not None:
            self._received.change(rule, slots)
        self._oldest_since_s = trio.current_time()
        self._is_stuck = False
        effects = self._window.change(rule, slots)
        self._links.replace({slot: new.ensemble[slot] for slot in slots}, known_over)
        self._advance(effects)

    def want_received(self) -> None:
        """Ask members for answers from memory, too, from the next entry on."""
        if self._received is None:
            rule = self.fragment.rule(self.record.quorum)
            self._received = ReceivedPrefix(rule, lac=self.lac)
            for _ in self._unacknowledged:
                self._received.push()

    # Copies.

    def copies_missing(self, last: EntryId) -> list[MissingCopies]:
        """Entries up to `last` with fewer than W confirmed copies."""
        return self._copies.missing(last)

    async def wait_copies(self, last: EntryId, *, patience_s: float) -> None:
        """Wait for outstanding confirmations of entries up to `last`."""
        with trio.move_on_after(patience_s):
            while any(
                self._copies.is_awaited(slot, last) and slot not in self._held_from
                for slot in self._links.slots_up
            ):
                self._copy_confirmed = trio.Event()
                await self._copy_confirmed.wait()

    def push_lac_nowait(self) -> None:
        """Send the LAC to the members, unless an add has carried it."""
        if self._is_over or self._lac_sent == self._window.lac:
            return
        self._lac_sent = self._window.lac
        for connection in self._links.connections():  # A copy: one may break and leave.
            connection.push_lac_nowait(self.record.ledger, self.record.epoch, self._lac_sent)

    # Calls from links and connections.

    async def _make_known(self, connection: NodeConnection) -> None:
        await make_known(connection, self.record, is_recovery=self._is_recovery)

    def on_member_up(self, slot: int) -> None:
        """Send a member that is up again what it lacks."""
        self._held_from.pop(slot, None)
        effects = self._window.on_slot_back(slot)
        if self._is_over:
            return
        for effect in effects:
            self._send(effect)
        connection = self._links.connection(slot)
        if connection is not None and not self._is_recovery and self._window.lac > NO_ENTRY:
            # A node loses pushed LACs in a restart, and may have missed one.
            connection.push_lac_nowait(self.record.ledger, self.record.epoch, self._window.lac)
        self._is_stuck = self.is_stuck()

    def on_member_away(self, slot: int) -> None:
        """Stop waiting for a member that cannot be reached."""
        self._window.on_slot_lost(slot)
        self._copy_confirmed.set()
        stuck = None if self._is_over or self._is_stuck else self._window.first_stuck()
        if stuck is not None:
            self._is_stuck = True
            self._listener.on_stuck(stuck, self.describe_away())

    def on_member_fenced(self, why: str) -> None:
        """End the writer: the ledger was taken over."""
        if not self._is_over:
            self.close()
            self._listener.on_fenced(self, f"ledger {self.record.ledger}: {why}")

    def on_add_synced(self, slot: int, entry: EntryId) -> None:
        """Count the entry as on disk at the member."""
        self._copies.on_confirmed(slot, entry)
        if self._is_over:
            self._copy_confirmed.set()
            return
        if self._received is not None:
            self.on_add_received(slot, entry)
        self._advance(self._window.on_synced(slot, entry))

    def on_add_received(self, slot: int, entry: EntryId) -> None:
        """Count the entry as in memory at the member."""
        received = self._received
        if received is not None and not self._is_over and received.on_received(slot, entry):
            self._listener.on_received(received.through)

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:
        """End the writer on FENCED; on any other refusal, take the member as lost."""
        if self._is_over:
            return
        why = f"entry {entry} refused ({refused.reason.name.lower()})"
        if refused.reason is Reason.FENCED and refused.epoch_highest >= self.record.epoch:
            self.on_member_fenced(f"{why}: the node has seen epoch {refused.epoch_highest}")
            return
        self._links.lose(slot, why, is_refusal=True)
        self.on_member_away(slot)

    def on_room(self, slot: int) -> None:
        """Send what was held back from a member, as far as it is still in flight."""
        first = self._held_from.pop(slot, None)
        if first is not None and not self._is_over:
            for effect in self._window.lacking(slot, first=first):
                self._send(effect)

    def on_slot_lost(self, slot: int) -> None:
        """Take a member whose connection ended as lost; its link tries again."""
        connection = self._links.connection(slot)
        self._links.lose(slot, connection.broken_why if connection else "")
        self.on_member_away(slot)

    def _send(self, effect: SendAdd) -> None:
        connection = self._links.connection(effect.slot)
        if connection is None or effect.slot in self._held_from:
            return
        encoded = self._unacknowledged[effect.entry - self._window.lac - 1]
        if not connection.has_room(encoded.length_bytes):
            self._held_from[effect.slot] = effect.entry
            connection.tell_room(self, effect.slot)
            return
        record = self.record
        connection.add_nowait(
            self,
            effect.slot,
            ledger=record.ledger,
            entry=effect.entry,
            epoch=record.epoch,
            lac=self._lac_at_start if self._is_recovery else self._window.lac,
            is_recovery=self._is_recovery,
            wants_received=self._received is not None,
            encoded=encoded,
        )

    def _advance(self, effects: list[AdvanceLac]) -> None:
        for effect in effects:
            lac = effect.lac
            left_count = self._window.entry_next - 1 - lac
            while len(self._unacknowledged) > left_count:
                self._unacknowledged.popleft()
            self._oldest_since_s = trio.current_time()
            if self._received is not None and self._received.on_lac(lac):
                self._listener.on_received(self._received.through)
            self._listener.on_lac(lac)
            if not self._is_recovery and not self._is_over:
                self._pool.push_lac_soon(self)
