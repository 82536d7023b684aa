"""The ledger that an owner has prepared to follow the open one."""

from collections.abc import Collection

from geolog.ledger.writing.ledger_writer import LedgerListener
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.open_segment import OpenSegment
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.protocol.ids import InstanceId


class NextLedger:
    """At most one prepared ledger of a partition: made, given up, or taken to be opened."""

    def __init__(self, source: LedgerAllocator, listener: LedgerListener) -> None:
        self._source = source
        self._listener = listener
        self.prepared: PreparedLedger | None = None

    def __repr__(self) -> str:
        return f"NextLedger({self.prepared!r})"

    async def prepare(self, avoid: Collection[InstanceId]) -> None:
        """Make it; use members in `avoid` only if needed. NotEnoughNodesError."""
        assert self.prepared is None, "a ledger is prepared already"
        self.prepared = await self._source.prepare(self._listener, avoid=avoid)

    async def prepare_better(self, segment: OpenSegment) -> bool:
        """Make one that is placed better than the open ledger, instead of the prepared one.

        Returns whether there is a better one; if not, the prepared one stays.
        """
        better = await self._source.prepare_better(
            self._listener,
            than=segment.keeper.ledger.record.fragments[-1],
            adherence=segment.keeper.adherence,
            avoid=segment.writer.instances_missing(),
        )
        if better is None:
            return False
        self.drop()
        self.prepared = better
        return True

    def take(self) -> PreparedLedger:
        """Hand it over to be opened."""
        prepared, self.prepared = self.prepared, None
        assert prepared is not None, "no ledger is prepared"
        return prepared

    def drop(self) -> None:
        """Forget it in the background, if there is one."""
        if self.prepared is not None:
            self._source.discard_soon(self.take())

    def close(self) -> None:
        """Stop its writer."""
        if self.prepared is not None:
            self.prepared.writer.close()

    async def discard(self) -> None:
        """Forget it, if there is one."""
        if self.prepared is not None:
            await self._source.discard(self.take())
