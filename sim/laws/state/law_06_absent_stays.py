"""Law 6: a node never takes from a writer an entry that it reported ABSENT to recovery."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from sim.laws.state.wire import EntryStored, Fact, Said


@attrs.define
class AbsentStays:
    """Keeps when each instance first said that an entry is absent."""

    _absent: dict[tuple[InstanceId, LedgerId, EntryId], int] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare the facts since the last look with earlier ones."""
        for fact in facts:
            match fact:
                case Said(answer=Answer.ABSENT, is_to_recovery=True):
                    self._absent.setdefault((fact.instance, fact.ledger, fact.entry), fact.at)
                case EntryStored(is_recovery=False):
                    said_at = self._absent.get((fact.instance, fact.ledger, fact.entry))
                    if said_at is not None and said_at < fact.taken_at:
                        yield (
                            f"node {fact.instance} told recovery that entry {fact.entry} of"
                            f" ledger {fact.ledger} is absent, then took it from the writer"
                        )
