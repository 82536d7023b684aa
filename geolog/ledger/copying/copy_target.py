"""A node that gets copies of a ledger's entries from a process that is not its writer.

Rules: PROTOCOL C5.
"""

import attrs
import trio

from geolog.ledger.nodes.connection import NodeConnection, NodeRefusedError
from geolog.ledger.nodes.node_pool import NodeLink
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState, Member
from geolog.protocol.messages import (
    AddRefused,
    Fence,
    Fenced,
    LedgerOpened,
    OpenLedger,
    Reason,
)
from geolog.transport.seam import ConnectionFailedError
from geolog.wire.entry import EncodedEntry
from topology.errors import UnavailableError

_WHY_REFUSED = {
    Reason.FENCED: "the ledger was taken over",
    Reason.READ_ONLY: "the node is read-only and stores nothing new",
    Reason.CONFLICT: "the node has other bytes there, which it considers intact",
    Reason.NO_SUCH_LEDGER: "the node has deleted the ledger",
}


@attrs.define
class _Add:
    """An add in flight. It is over when `ended` is set, successfully unless `failure` is."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    failure: UnavailableError | None = None


class CopyTarget:
    """One ledger at one node, over one connection.

    A ledger that is not OPEN is fenced there under its epoch, and filled as recovery fills it.
    An OPEN ledger has a writer, which a fence would end, so it is opened under its epoch and
    filled as the writer would, with a LAC that covers the entries: all are final.
    """

    def __init__(
        self,
        link: NodeLink,
        connection: NodeConnection,
        record: LedgerRecord,
        slot: int,
        member: Member,
        *,
        lac: EntryId,
    ) -> None:
        self._link = link
        self._connection = connection
        self._record = record
        self._slot = slot
        self._member = member
        self._lac = lac if self._is_open else NO_ENTRY
        self._adds: dict[EntryId, _Add] = {}
        self._room_changed = trio.Event()
        connection.attach(self, slot)
        link.subscribe(self)  # Keeps the link up while it is used, however slowly.

    @property
    def _is_open(self) -> bool:
        return self._record.state is LedgerState.OPEN

    async def make_known(self) -> None:
        """Make the ledger durably known to the node before its first entry."""
        record, instance = self._record, self._member.instance
        if self._is_open:
            await self._connection.ask(
                lambda request: OpenLedger(request, record.ledger, record.epoch, instance),
                LedgerOpened,
            )
        else:
            await self._connection.ask(
                lambda request: Fence(request, record.ledger, record.epoch, instance), Fenced
            )

    async def store(self, entry: EntryId, encoded: EncodedEntry) -> None:
        """Send a copy, and wait until it is on disk. NodeRefusedError, UnavailableError.

        The same entry must not be stored here twice at the same time.
        """
        assert entry not in self._adds, f"entry {entry} is in flight already"
        while not (
            self._connection.is_broken or self._connection.has_room(encoded.length_bytes)
        ):
            self._connection.tell_room(self, self._slot)
            await self._room_changed.wait()
        if self._connection.is_broken:
            raise self._lost()
        add = self._adds[entry] = _Add()
        try:
            self._connection.add_nowait(
                self,
                self._slot,
                ledger=self._record.ledger,
                entry=entry,
                epoch=self._record.epoch,
                lac=self._lac,
                is_recovery=not self._is_open,
                encoded=encoded,
            )
            await add.ended.wait()
        finally:
            del self._adds[entry]
        if add.failure is not None:
            raise add.failure

    def close(self) -> None:
        """Release the connection."""
        self._connection.detach(self, self._slot)
        self._link.unsubscribe(self)

    def _lost(self) -> ConnectionFailedError:
        return ConnectionFailedError(self._connection.broken_why)

    # Calls from the link and the connection.

    def on_link_up(self, instance: InstanceId, connection: NodeConnection) -> None:
        """Ignored: this target has its own connection, or has lost it for good."""

    def on_link_down(self, instance: InstanceId, why: str) -> None:
        """Ignored: the end of the connection was reported already."""

    def on_add_synced(self, slot: int, entry: EntryId) -> None:  # noqa: ARG002 - the one it has.
        """The copy is on disk."""
        self._end(entry, None)

    def on_add_received(self, slot: int, entry: EntryId) -> None:
        """Not requested: a copy counts once it is on disk."""

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:  # noqa: ARG002 - the one it has.
        """The node refuses the copy."""
        why = _WHY_REFUSED.get(refused.reason, refused.reason.name.lower())
        self._end(entry, NodeRefusedError(f"entry {entry} was refused: {why}", refused.reason))

    def on_slot_lost(self, slot: int) -> None:
        """The connection is gone; unanswered copies may be stored all the same."""
        for entry in list(self._adds):
            self._end(entry, self._lost())
        self.on_room(slot)

    def on_room(self, slot: int) -> None:  # noqa: ARG002 - the one it has.
        """The connection takes more."""
        changed, self._room_changed = self._room_changed, trio.Event()
        changed.set()

    def _end(self, entry: EntryId, failure: UnavailableError | None) -> None:
        add = self._adds.get(entry)
        if add is not None:
            add.failure = failure
            add.ended.set()
