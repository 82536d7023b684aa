"""A ledger that holds a later part of its segment, as a copy in another region may."""

import attrs
import trio

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.seam import Freshness
from geolog.protocol.entry_numbering import EntryNumbering
from geolog.protocol.ids import EntryId, LedgerId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import SegmentRecord
from tests.pure.ledger.fake_nodes import FakeNodes, entry_of

FIRST = SegmentEntry(7)
"""Number in its segment of the ledger's entry 0."""


@attrs.frozen(kw_only=True)
class LaterPart(LedgerRecord):
    """A ledger whose entry 0 is entry 7 of its segment."""

    @property
    def numbering(self) -> EntryNumbering:
        return EntryNumbering(self.segment, FIRST)


@attrs.frozen(kw_only=True)
class LaterSegment(SegmentRecord):
    """The segment of such a ledger."""

    @property
    def numbering(self) -> EntryNumbering:
        return EntryNumbering(self.segment, FIRST)


class LaterLedgers(LedgerMetadata):
    """Metadata that knows such ledgers."""

    async def read(
        self,
        ledger: LedgerId,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> VersionedLedger:
        read = await super().read(ledger, changed=changed, freshness=freshness)
        record = LaterPart(**attrs.asdict(read.record, recurse=False))
        return attrs.evolve(read, record=record)


def later_part(nodes: FakeNodes, count: int) -> LaterPart:
    """A ledger whose first entries are at all nodes, as if they had been acknowledged."""
    for node in nodes.nodes:
        node.entries = {EntryId(one): entry_of(FIRST + one).join() for one in range(count)}
    return LaterPart(**attrs.asdict(nodes.ledger(), recurse=False))
