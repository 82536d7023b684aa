"""The reachable members of a ledger's ensemble, with the ledger open at each.

A member is up when its node is connected and the ledger was made known to it over that very
connection. A member that refuses is left alone for a while, then tried again. A slot may be
given to another member; whatever was under way with the former member is then dropped.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import trio

from geolog.ledger.nodes.connection import AddSink, NodeConnection, NodeRefusedError
from geolog.ledger.nodes.node_pool import NodePool
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import Fence, Fenced, LedgerOpened, OpenLedger
from topology.errors import FencedError, GeologError

REFUSAL_REST_S = 2.0
"""Pause before trying a member that refused again: a full disk does not empty at once."""

MakeKnown = Callable[[NodeConnection], Awaitable[None]]
"""Makes a ledger durably known to a node: opened, or fenced. FencedError, NodeRefusedError."""


async def make_known(
    connection: NodeConnection, record: LedgerRecord, *, is_recovery: bool
) -> None:
    """Make the ledger known to a node before its first add: open it, or fence it in recovery.

    FencedError, NodeRefusedError.
    """
    ledger, epoch = record.ledger, record.epoch
    if is_recovery:
        await connection.ask(
            lambda request: Fence(request, ledger, epoch, connection.instance), Fenced
        )
    else:
        await connection.ask(
            lambda request: OpenLedger(request, ledger, epoch, connection.instance),
            LedgerOpened,
        )


class LinksUser(AddSink, Protocol):
    """The user of an ensemble's links."""

    def on_member_up(self, slot: int) -> None:
        """The member takes adds from now on; adds sent to it before may be lost."""
        ...

    def on_member_away(self, slot: int) -> None:
        """The member cannot be reached, or refuses."""
        ...

    def on_member_fenced(self, why: str) -> None:
        """A member says that the ledger was taken over."""
        ...


class EnsembleLinks:
    """The members that are up, by slot.

    Invariants: a slot is in `_connections` exactly when its current member knows the ledger
    over that connection and the user is attached to it; it is in `away_since_s` exactly when it
    is not in `_connections`.
    """

    def __init__(
        self,
        pool: NodePool,
        ensemble: Sequence[Member],
        make_known: MakeKnown,
        user: LinksUser,
        *,
        nursery: trio.Nursery,
        known_over: Mapping[InstanceId, NodeConnection],
    ) -> None:
        """known_over: connections over which members already know the ledger."""
        self._pool = pool
        self._members = list(ensemble)
        self._slot_of = {member.instance: slot for slot, member in enumerate(ensemble)}
        self._make_known = make_known
        self._user = user
        self._nursery = nursery
        self._connections: dict[int, NodeConnection] = {}
        self._known_over = dict(known_over)
        self._is_closed = False
        self._changed = trio.Event()
        self.why_away: dict[int, str] = {}
        self.away_since_s = dict.fromkeys(range(len(ensemble)), trio.current_time())

    def open(self) -> None:
        """Start connecting to all members."""
        for member in self._members:
            self._pool.link(member.instance).subscribe(self)

    def close(self) -> None:
        """Drop all members, and call the user no more."""
        self._is_closed = True
        for slot, member in enumerate(self._members):
            self._drop(slot, member)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def slots_up(self) -> list[int]:
        """Slots of members that are up."""
        return sorted(self._connections)

    def connection(self, slot: int) -> NodeConnection | None:
        """The connection of a slot whose member is up."""
        return self._connections.get(slot)

    def connections(self) -> list[NodeConnection]:
        """The connections of all members that are up."""
        return [self._connections[slot] for slot in sorted(self._connections)]

    def instances_away(self) -> list[InstanceId]:
        """Members that are not up."""
        return [self._members[slot].instance for slot in sorted(self.away_since_s)]

    def describe_away(self) -> str:
        """The members that are not up, with reasons, for people."""
        return ", ".join(
            f"{member.node_id}"
            f" ({self.why_away.get(slot) or self._pool.link(member.instance).why_down})"
            for slot, member in enumerate(self._members)
            if slot in self.away_since_s
        )

    def has_heard_of_all(self) -> bool:
        """Whether each member is up, or has failed at least once."""
        return len(self._connections.keys() | self.why_away.keys()) == len(self._members)

    async def wait_change(self) -> None:
        """Wait until the state of some member changes."""
        self._changed = trio.Event()
        await self._changed.wait()

    def replace(
        self, members: Mapping[int, Member], known_over: Mapping[InstanceId, NodeConnection]
    ) -> None:
        """Give these slots to other members.

        `known_over`: connections over which the new members already know the ledger.
        """
        for slot in members:
            self._drop(slot, self._members[slot])
            del self._slot_of[self._members[slot].instance]
        self._known_over.update(known_over)
        for slot, member in members.items():
            assert member.instance not in self._slot_of, f"{member} is in the ensemble already"
            self._members[slot] = member
            self._slot_of[member.instance] = slot
            self.away_since_s[slot] = trio.current_time()
        for member in members.values():
            self._pool.link(member.instance).subscribe(self)

    def lose(self, slot: int, why: str, *, is_refusal: bool = False) -> None:
        """Take a member as not up; one that refused is tried again after a pause."""
        connection = self._connections.pop(slot, None)
        self.why_away[slot] = why
        self.away_since_s.setdefault(slot, trio.current_time())
        if connection is not None:
            connection.detach(self._user, slot)
            if is_refusal:
                self._known_over.pop(self._members[slot].instance, None)
                self._join_later(self._members[slot], connection)
        self._changed.set()

    def _drop(self, slot: int, member: Member) -> None:
        self._pool.link(member.instance).unsubscribe(self)
        self._known_over.pop(member.instance, None)
        self.why_away.pop(slot, None)
        connection = self._connections.pop(slot, None)
        if connection is not None:
            connection.detach(self._user, slot)

    # Calls from links.

    def on_link_up(self, instance: InstanceId, connection: NodeConnection) -> None:
        """Make the ledger known to a member that is now connected."""
        if not self._is_closed:
            self._nursery.start_soon(self._join, instance, connection)

    def on_link_down(self, instance: InstanceId, why: str) -> None:
        """Note that a member cannot be reached; its link tries again."""
        slot = self._slot_of[instance]
        self.why_away[slot] = why
        self._changed.set()
        self._user.on_member_away(slot)

    async def _join(self, instance: InstanceId, connection: NodeConnection) -> None:
        try:
            if self._known_over.get(instance) is not connection:
                await self._make_known(connection)
        except FencedError as error:
            if not self._is_closed:
                self._user.on_member_fenced(str(error))
            return
        except GeologError as error:
            self._on_not_joined(instance, connection, error)
            return
        slot = self._slot_of.get(instance)
        if self._is_closed or slot is None or connection.is_broken:
            return  # Also if another member has the slot by now.
        self._known_over[instance] = connection
        self._connections[slot] = connection
        self.why_away.pop(slot, None)
        self.away_since_s.pop(slot, None)
        connection.attach(self._user, slot)
        self._user.on_member_up(slot)
        self._changed.set()

    def _on_not_joined(
        self, instance: InstanceId, connection: NodeConnection, error: GeologError
    ) -> None:
        slot = self._slot_of.get(instance)
        if self._is_closed or slot is None:
            return
        self.why_away[slot] = str(error)
        self._changed.set()
        if isinstance(error, NodeRefusedError):
            self._join_later(self._members[slot], connection)
            self._user.on_member_away(slot)

    def _join_later(self, member: Member, connection: NodeConnection) -> None:
        """Try a member that refused again, on the same connection: its disk may have room."""

        async def join_again() -> None:
            await trio.sleep(REFUSAL_REST_S)
            is_member = member.instance in self._slot_of
            if not self._is_closed and is_member and not connection.is_broken:
                await self._join(member.instance, connection)

        self._nursery.start_soon(join_again, name=f"join {member.node_id} again")
