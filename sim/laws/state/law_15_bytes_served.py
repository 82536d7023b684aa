"""Law 15: a node serves the bytes of an entry that were added, or none."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, LedgerId
from sim.laws.state.wire import EntryStored, Fact, Said


@attrs.define
class BytesServed:
    """Keeps each entry's checksum: an entry has one writer, and recovery never changes it."""

    _checksums: dict[tuple[LedgerId, EntryId], int] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare the bytes served since the last look with those added."""
        for fact in facts:
            match fact:
                case EntryStored():
                    self._checksums.setdefault((fact.ledger, fact.entry), fact.body_crc)
                case Said(body_crc=int()):
                    added = self._checksums.get((fact.ledger, fact.entry), fact.body_crc)
                    if fact.body_crc != added:
                        yield (
                            f"node {fact.instance} served other bytes for entry {fact.entry} of"
                            f" ledger {fact.ledger} than were added"
                        )
