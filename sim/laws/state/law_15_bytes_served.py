"""Law 15: a node gives the bytes of an entry that were added, or none."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, LedgerId
from sim.laws.state.wire import EntryStored, Fact, Said


@attrs.define
class BytesServed:
    """Keeps the checksum of each entry: it has one writer, and recovery changes nothing."""

    _checksums: dict[tuple[LedgerId, EntryId], int] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare what was given since the last look with what was added."""
        for fact in facts:
            match fact:
                case EntryStored():
                    self._checksums.setdefault((fact.ledger, fact.entry), fact.body_crc)
                case Said(body_crc=int()):
                    added = self._checksums.get((fact.ledger, fact.entry), fact.body_crc)
                    if fact.body_crc != added:
                        yield (
                            f"node {fact.instance} gave other bytes of entry {fact.entry} of"
                            f" ledger {fact.ledger} than were added"
                        )
