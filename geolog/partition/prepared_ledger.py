"""A ledger that is ready to be written, and how an owner gets its first one."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import trio

from geolog.ledger.ledger_metadata import VersionedLedger
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.protocol.ids import EntryId
from topology.errors import GeologError
from topology.ring.window_rule import Adherence


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

    The two do not depend on each other, and over distance each takes a while. The ledger is in
    no list, so it does no harm if the takeover fails; it is then forgotten.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[PreparedLedger]],
        discard: Callable[[PreparedLedger], Awaitable[None]],
    ) -> None:
        self._make = make
        self._discard = discard
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._prepared: PreparedLedger | None = None

    async def run(self) -> None:
        """Make the ledger. Errors are dropped: the owner tries again and reports its own."""
        try:
            with self._scope, suppress(GeologError):
                self._prepared = await self._make()
        finally:
            self._ended.set()

    async def take(self) -> PreparedLedger | None:
        """Wait for the ledger; None if it was not made, or can no longer be written."""
        await self._ended.wait()
        prepared, self._prepared = self._prepared, None
        if prepared is not None and not prepared.writer.can_go_on():
            await self._discard(prepared)
            return None
        return prepared

    async def give_up(self) -> None:
        """Forget the ledger unless it was taken, even if this call is cancelled."""
        self._scope.cancel(reason="it is not needed")
        with trio.CancelScope(shield=True):
            await self._ended.wait()
            prepared, self._prepared = self._prepared, None
            if prepared is not None:
                await self._discard(prepared)


class NullListener:
    """Listens to a ledger without entries, of which there is nothing to tell."""

    def on_lac(self, lac: EntryId) -> None:
        """No entry can be acknowledged yet."""
        raise AssertionError(f"entry {lac} is acknowledged, and none was added")

    def on_received(self, through: EntryId) -> None:
        """No entry can be received yet."""
        raise AssertionError(f"entry {through} was received, and none was added")

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Nothing to do: the ledger's writer is over, and knows it."""

    def on_stuck(self, entry: EntryId, why: str) -> None:
        """No entry can be stuck yet."""
        raise AssertionError(f"entry {entry} is stuck ({why}), and none was added")
