"""A ledger that is ready to be written, and how an owner gets its first one."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import attrs
import trio

from geolog.ledger.ledger_metadata import VersionedLedger
from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.protocol.ids import InstanceId
from topology.errors import GeologError
from topology.ring.window_rule import Adherence


@attrs.frozen
class AllocatedLedger:
    """A ledger that has a record, and that some of its members may know."""

    ledger: VersionedLedger
    adherence: Adherence
    made_s: float
    known_over: Mapping[InstanceId, NodeConnection] = attrs.field(factory=dict)
    """Connections over which members were told of it."""

    def slots_ready(self) -> list[int]:
        """Slots whose members know it, and are still connected."""
        return [
            slot
            for slot, member in enumerate(self.ledger.record.fragments[-1].ensemble)
            if member.instance in self.known_over
            and not self.known_over[member.instance].is_broken
        ]

    def instances_missing(self) -> list[InstanceId]:
        """Members that do not know it, or are no longer connected."""
        ready = self.slots_ready()
        ensemble = self.ledger.record.fragments[-1].ensemble
        return [one.instance for slot, one in enumerate(ensemble) if slot not in ready]

    def can_go_on(self) -> bool:
        """Whether every entry could reach an ack set among the members that are ready."""
        record = self.ledger.record
        ready = sum(1 << slot for slot in self.slots_ready())
        return record.fragments[-1].rule(record.quorum).acks_all(ready)


@attrs.frozen
class PreparedLedger:
    """A ledger that is ALLOCATED and known to its members: one multi from being written."""

    ledger: VersionedLedger
    writer: LedgerWriter
    adherence: Adherence
    made_s: float

    @property
    def age_s(self) -> float:
        """How long it has waited to be used."""
        return trio.current_time() - self.made_s


class EarlyLedger:
    """A first ledger that is made while its partition is still being taken over.

    The two do not depend on each other, and over distance each takes a while. Its members are
    told of it, but it has no writer yet. The ledger is in no list, so it does no harm if the
    takeover fails; it is then forgotten.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[AllocatedLedger]],
        forget: Callable[[VersionedLedger], Awaitable[None]],
    ) -> None:
        self._make = make
        self._forget = forget
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._made: AllocatedLedger | None = None

    async def run(self) -> None:
        """Make the ledger. Errors are dropped: the owner tries again and reports its own."""
        try:
            with self._scope, suppress(GeologError):
                self._made = await self._make()
        finally:
            self._ended.set()

    async def take(self) -> AllocatedLedger | None:
        """Wait for the ledger; None if it was not made, or can no longer be written."""
        await self._ended.wait()
        made, self._made = self._made, None
        if made is not None and not made.can_go_on():
            await self._forget(made.ledger)
            return None
        return made

    async def give_up(self) -> None:
        """Forget the ledger unless it was taken, even if this call is cancelled."""
        self._scope.cancel(reason="it is not needed")
        with trio.CancelScope(shield=True):
            await self._ended.wait()
            made, self._made = self._made, None
            if made is not None:
                await self._forget(made.ledger)
