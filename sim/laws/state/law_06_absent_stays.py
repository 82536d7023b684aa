"""Law 6: what a node said to recovery to be ABSENT, it takes from no writer later."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from sim.laws.state.wire import EntryStored, Fact, Said


@attrs.define
class AbsentStays:
    """Keeps when each instance said of an entry that it is absent, the first time."""

    _absent: dict[tuple[InstanceId, LedgerId, EntryId], int] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare what was said since the last look with what was said before."""
        for fact in facts:
            match fact:
                case Said(answer=Answer.ABSENT, is_to_recovery=True):
                    self._absent.setdefault((fact.instance, fact.ledger, fact.entry), fact.at)
                case EntryStored(is_recovery=False):
                    said_at = self._absent.get((fact.instance, fact.ledger, fact.entry))
                    if said_at is not None and said_at < fact.taken_at:
                        yield (
                            f"node {fact.instance} has told recovery that entry {fact.entry} of"
                            f" ledger {fact.ledger} is absent, and then took it from its writer"
                        )
