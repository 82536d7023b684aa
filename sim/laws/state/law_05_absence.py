"""Law 5: damage, time-outs and changed disks never count as absence.

A node that said that an entry is on its disk never says ABSENT of it afterwards. If that disk
was harmed, it says CORRUPT or UNKNOWN until the loss is repaired. Anything it says it has after
that counts again.
"""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from sim.laws.state.wire import DoubtEnded, EntryStored, Fact, Said


@attrs.define
class AbsenceIsTrue:
    """Keeps which entries each instance said to be on its disk, and when it first did."""

    _stored: dict[InstanceId, dict[tuple[LedgerId, EntryId], int]] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare the answers since the last look with earlier ones."""
        for fact in facts:
            match fact:
                case EntryStored():
                    stored = self._stored.setdefault(fact.instance, {})
                    stored.setdefault((fact.ledger, fact.entry), fact.at)
                case Said(answer=Answer.HAVE, body_crc=None):
                    # From a probe, which is answered once everything appended is on disk.
                    stored = self._stored.setdefault(fact.instance, {})
                    stored.setdefault((fact.ledger, fact.entry), fact.at)
                case Said(answer=Answer.ABSENT):
                    stored_at = self._stored.get(fact.instance, {}).get(
                        (fact.ledger, fact.entry)
                    )
                    if stored_at is not None and stored_at < fact.asked_at:
                        yield (
                            f"node {fact.instance} says that entry {fact.entry} of ledger"
                            f" {fact.ledger} is absent, after it said that it is on its disk"
                        )
                case DoubtEnded(instance):
                    self._stored.pop(instance, None)
