"""The shell round the add window of one ledger: it sends, hears, and tells its listener.

It decides nothing about acknowledgement (`geolog.protocol.add_window` does). Entries that are
not acknowledged are kept, to be sent again to a member that comes back. When the ledger must
end, its owner writes their batches again, to the next.
"""

from collections import deque
from typing import Protocol

import trio

from geolog.ledger.connection import NodeConnection, NodeRefusedError
from geolog.ledger.node_pool import NodePool
from geolog.protocol.add_window import AddWindow, SendAdd
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import (
    AddRefused,
    Fence,
    Fenced,
    LedgerOpened,
    OpenLedger,
    Reason,
)
from geolog.wire.entry import EncodedEntry
from topology.errors import FencedError, GeologError, NotEnoughNodesError

REFUSAL_REST_S = 2.0
"""How long a member that refused is left alone: a full disk is not empty at once."""


class LedgerListener(Protocol):
    """Who is told what becomes of a ledger's entries. Called at once, in order."""

    def on_lac(self, lac: EntryId) -> None:
        """All entries up to here are acknowledged."""
        ...

    def on_fenced(self, writer: "LedgerWriter", why: str) -> None:
        """Another has taken the ledger: nothing more will be acknowledged here."""
        ...

    def on_stuck(self, entry: EntryId, why: str) -> None:
        """The entry cannot reach an ack set with the members that answer now."""
        ...


class LedgerWriter:
    """Writes one ledger under one epoch.

    Invariants: `_unacknowledged` holds exactly the entries above the window's LAC, in order; a
    slot is in `_connections` exactly when the ledger is open at that member and it is
    connected; of a slot in `_held_from` nothing from that entry on was sent to it, because its
    connection has no room.
    """

    def __init__(
        self,
        pool: NodePool,
        record: LedgerRecord,
        fragment: Fragment,
        listener: LedgerListener,
        *,
        nursery: trio.Nursery,
        lac: EntryId,
        is_recovery: bool = False,
    ) -> None:
        self.record = record
        self._pool = pool
        self._fragment = fragment
        self._listener = listener
        self._nursery = nursery
        self._is_recovery = is_recovery
        self._lac_at_start = lac
        self._window = AddWindow(fragment.rule(record.quorum), lac=lac)
        self._slot_of = {member.instance: slot for slot, member in enumerate(fragment.ensemble)}
        self._connections: dict[int, NodeConnection] = {}
        self._held_from: dict[int, EntryId] = {}
        self._unacknowledged: deque[EncodedEntry] = deque()
        self._unacknowledged_bytes = 0
        self._oldest_since_s = 0.0
        self._lac_told = lac
        self._opened = trio.Event()
        self._is_over = False
        self._is_stuck = False
        self.why_lost: dict[int, str] = {}
        for slot in range(len(fragment.ensemble)):
            self._window.on_slot_lost(slot)  # Until it is connected.

    def __repr__(self) -> str:
        return (
            f"LedgerWriter(ledger {self.record.ledger}, epoch {self.record.epoch}, lac"
            f" {self.lac}, {len(self._unacknowledged)} in flight, slots"
            f" {sorted(self._connections)} up)"
        )

    @property
    def lac(self) -> EntryId:
        """Last add confirmed."""
        return self._window.lac

    @property
    def entry_next(self) -> EntryId:
        """The number of the next entry."""
        return self._window.entry_next

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or fenced."""
        return self._is_over

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of entries that are in flight."""
        return self._unacknowledged_bytes

    async def open(self, *, patience_s: float) -> None:
        """Connect to the members, and make the ledger known to them.

        Returns when every write set has an ack set among the members that are ready, and the
        others cannot be reached or have let `patience_s` pass; NotEnoughNodesError if not.
        """
        for member in self._fragment.ensemble:
            self._pool.link(member.instance).subscribe(self)
        with trio.move_on_after(patience_s):
            while not self._is_ready():
                self._opened = trio.Event()
                await self._opened.wait()
        if not self._window.can_go_on():
            self.close()
            raise NotEnoughNodesError(
                f"ledger {self.record.ledger} cannot be written: no answer from {self._lost()}"
            )

    def _is_ready(self) -> bool:
        """Whether waiting longer for members would gain nothing that is needed."""
        spoken_count = len(self._connections.keys() | self.why_lost.keys())
        return spoken_count == len(self._fragment.ensemble) and self._window.can_go_on()

    def _lost(self) -> str:
        """The members that are not up, and why, as a person would read it."""
        return ", ".join(
            f"{member.node_id} ({why or self._pool.link(member.instance).why_down})"
            for slot, member in enumerate(self._fragment.ensemble)
            if slot not in self._connections
            for why in [self.why_lost.get(slot)]
        )

    def add_nowait(self, encoded: EncodedEntry) -> EntryId:
        """Send the next entry to its write set; the outcome comes to the listener."""
        assert not self._is_over, "the ledger is not written any more"
        effects = self._window.push()
        entry = EntryId(self._window.entry_next - 1)
        if not self._unacknowledged:
            self._oldest_since_s = trio.current_time()
        self._unacknowledged.append(encoded)
        self._unacknowledged_bytes += encoded.length_bytes
        for effect in effects:
            self._send(effect)
        if not self._is_recovery:
            self._lac_told = self._window.lac
        return entry

    def close(self) -> None:
        """Send nothing more, and hear nothing more."""
        if self._is_over:
            return
        self._is_over = True
        for slot, member in enumerate(self._fragment.ensemble):
            self._pool.link(member.instance).unsubscribe(self)
            connection = self._connections.pop(slot, None)
            if connection is not None:
                connection.detach(self, slot)

    def can_go_on(self) -> bool:
        """Whether every entry to come can reach an ack set with the members that are up."""
        return not self._is_over and self._window.can_go_on()

    def instances(self) -> set[InstanceId]:
        """The members, by identity."""
        return set(self._slot_of)

    def instances_missing(self) -> list[InstanceId]:
        """Members that are not up: entries are stored in fewer copies than they could."""
        return [
            member.instance
            for slot, member in enumerate(self._fragment.ensemble)
            if slot not in self._connections
        ]

    def is_stuck(self) -> bool:
        """Whether an entry in flight cannot reach an ack set with the members that are up."""
        return not self._is_over and self._window.first_stuck() is not None

    def is_late(self, add_timeout_s: float) -> bool:
        """Whether the oldest entry in flight has waited for longer than that."""
        return bool(self._unacknowledged) and (
            trio.current_time() - self._oldest_since_s > add_timeout_s
        )

    def instances_late(self) -> list[InstanceId]:
        """Members that hold back the oldest entry in flight."""
        return [self._fragment.ensemble[slot].instance for slot in self._window.slots_late()]

    def push_lac_nowait(self) -> None:
        """Tell the members the LAC, if no add has carried it."""
        if self._is_over or self._lac_told == self._window.lac:
            return
        self._lac_told = self._window.lac
        for connection in list(self._connections.values()):  # One may break, and leave.
            connection.push_lac_nowait(self.record.ledger, self.record.epoch, self._lac_told)

    # What links and connections tell.

    def on_link_up(self, instance: InstanceId, connection: NodeConnection) -> None:
        """A member is connected: make the ledger known to it, then send what it lacks."""
        if not self._is_over:
            self._nursery.start_soon(self._join, self._slot_of[instance], connection)

    def on_link_down(self, instance: InstanceId, why: str) -> None:
        """A member cannot be reached now; it is not waited for."""
        self.why_lost[self._slot_of[instance]] = why
        self._opened.set()

    async def _join(self, slot: int, connection: NodeConnection) -> None:
        try:
            await self._make_known(connection)
        except FencedError as error:
            self._on_fenced(str(error))
            return
        except GeologError as error:
            self.why_lost[slot] = str(error)
            self._opened.set()
            if isinstance(error, NodeRefusedError):
                self._tell_if_stuck()
                self._join_later(slot, connection)
            return
        if self._is_over or connection.is_broken:
            return
        self._connections[slot] = connection
        self.why_lost.pop(slot, None)
        connection.attach(self, slot)
        self._held_from.pop(slot, None)
        for effect in self._window.on_slot_back(slot):
            self._send(effect)
        if not self._is_recovery and self._window.lac > NO_ENTRY:
            # A node forgets in a restart what was pushed to it, and may have missed it.
            connection.push_lac_nowait(self.record.ledger, self.record.epoch, self._window.lac)
        self._is_stuck = self.is_stuck()
        self._opened.set()

    async def _make_known(self, connection: NodeConnection) -> None:
        """Before its first add a member knows the ledger: opened, or fenced by recovery."""
        ledger, epoch = self.record.ledger, self.record.epoch
        if self._is_recovery:
            await connection.ask(
                lambda request: Fence(request, ledger, epoch, connection.instance), Fenced
            )
        else:
            await connection.ask(
                lambda request: OpenLedger(request, ledger, epoch, connection.instance),
                LedgerOpened,
            )

    def on_add_synced(self, slot: int, entry: EntryId) -> None:
        """A member has the entry on disk."""
        if self._is_over:
            return
        for effect in self._window.on_synced(slot, entry):
            self._release(effect.lac)

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:
        """A member refuses: fenced ends all, anything else loses the member."""
        if self._is_over:
            return
        why = f"entry {entry} refused ({refused.reason.name.lower()})"
        if refused.reason is Reason.FENCED and refused.epoch_highest >= self.record.epoch:
            self._on_fenced(f"{why}: epoch {refused.epoch_highest} was seen there")
            return
        connection = self._connections.pop(slot, None)
        if connection is not None:
            connection.detach(self, slot)
            self._join_later(slot, connection)
        self._lose(slot, why)

    def _join_later(self, slot: int, connection: NodeConnection) -> None:
        """Try a member again that refused, on the same connection: its disk may have room."""

        async def join_again() -> None:
            await trio.sleep(REFUSAL_REST_S)
            if not self._is_over and not connection.is_broken:
                await self._join(slot, connection)

        self._nursery.start_soon(join_again, name=f"join {self.record.ledger} again")

    def on_room(self, slot: int) -> None:
        """A member's connection takes more: send what was held back and is still in flight."""
        first = self._held_from.pop(slot, None)
        if first is not None and not self._is_over:
            for effect in self._window.lacking(slot, first=first):
                self._send(effect)

    def on_slot_lost(self, slot: int) -> None:
        """A member's connection is gone; its link tries again."""
        connection = self._connections.pop(slot, None)
        if not self._is_over:
            self._lose(slot, connection.broken_why if connection else "")

    def _lose(self, slot: int, why: str) -> None:
        self.why_lost[slot] = why
        self._window.on_slot_lost(slot)
        self._tell_if_stuck()

    def _tell_if_stuck(self) -> None:
        stuck = None if self._is_over or self._is_stuck else self._window.first_stuck()
        if stuck is not None:
            self._is_stuck = True
            self._listener.on_stuck(stuck, "; ".join(self.why_lost.values()))

    def _on_fenced(self, why: str) -> None:
        if not self._is_over:
            self.close()
            self._listener.on_fenced(self, f"ledger {self.record.ledger}: {why}")

    def _send(self, effect: SendAdd) -> None:
        connection = self._connections.get(effect.slot)
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
            encoded=encoded,
        )

    def _release(self, lac: EntryId) -> None:
        left_count = self._window.entry_next - 1 - lac
        while len(self._unacknowledged) > left_count:
            self._unacknowledged_bytes -= self._unacknowledged.popleft().length_bytes
        self._oldest_since_s = trio.current_time()
        self._listener.on_lac(lac)
        if not self._is_recovery and not self._is_over:
            self._pool.push_lac_soon(self)
