"""Adds random bytes to one node over one connection, with many adds in flight."""

import random

import trio

from geolog.ledger.nodes.connection import NodeConnection
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId
from geolog.protocol.messages import AddRefused, LedgerOpened, OpenLedger, Reason
from geolog.wire.batch import seal_batch
from geolog.wire.entry import EncodedEntry, encode_entry
from topology.errors import UnavailableError

EPOCH = Epoch(1)
_LOST = Reason.STOPPING
_IN_FLIGHT_BYTES = 16 << 20


def random_entry(entry_bytes: int, rng: random.Random) -> EncodedEntry:
    """An entry with one record of about `entry_bytes` bytes."""
    sealed = seal_batch([rng.randbytes(entry_bytes)], created_us=0, compress=False)
    return encode_entry(
        [sealed], home_epoch=1, segment=1, entry=0, first_sequence=0, append_time_us=0
    )


class LedgerLoad:
    """Opens ledgers at one node and adds entries to them."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection = connection
        self._in_flight_bytes = 0
        self._in_flight: dict[tuple[int, EntryId], int] = {}
        self._changed = trio.Event()
        self._refusal: AddRefused | None = None
        self.synced_bytes = 0

    async def open(self, ledger: LedgerId) -> None:
        """Open the ledger at the node."""
        await self._connection.ask(
            lambda request: OpenLedger(request, ledger, EPOCH, self._connection.instance),
            LedgerOpened,
        )
        self._connection.attach(self, int(ledger))

    async def add(self, ledger: LedgerId, entry: EntryId, encoded: EncodedEntry) -> None:
        """Add one entry; wait while too much is in flight. UnavailableError if refused."""
        while self._in_flight_bytes >= _IN_FLIGHT_BYTES and self._refusal is None:
            await self._wait_change()
        self._check()
        self._in_flight[int(ledger), entry] = encoded.length_bytes
        self._in_flight_bytes += encoded.length_bytes
        self._connection.add_nowait(
            self,
            int(ledger),
            ledger=ledger,
            entry=entry,
            epoch=EPOCH,
            lac=NO_ENTRY,
            is_recovery=False,
            encoded=encoded,
        )

    async def wait_synced(self) -> None:
        """Wait until all entries are on disk."""
        while self._in_flight and self._refusal is None:
            await self._wait_change()
        self._check()

    async def _wait_change(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()

    def _check(self) -> None:
        if self._refusal is not None:
            raise UnavailableError(f"the node refused an add: {self._refusal}")

    # Callbacks of the connection. The slot of a ledger is its id.

    def on_add_synced(self, slot: int, entry: EntryId) -> None:
        """Note that an entry is on disk."""
        size_bytes = self._in_flight.pop((slot, entry))
        self._in_flight_bytes -= size_bytes
        self.synced_bytes += size_bytes
        self._changed.set()

    def on_add_received(self, slot: int, entry: EntryId) -> None:
        """Ignore it."""

    def on_add_refused(self, slot: int, entry: EntryId, refused: AddRefused) -> None:  # noqa: ARG002
        """Note the refusal, which ends the benchmark."""
        self._refusal = refused
        self._changed.set()

    def on_slot_lost(self, slot: int) -> None:  # noqa: ARG002 - All ledgers lose it.
        """End the benchmark: the connection is gone."""
        self._refusal = self._refusal or AddRefused(0, _LOST, EPOCH)
        self._changed.set()
