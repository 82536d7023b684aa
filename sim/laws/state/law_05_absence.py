"""Law 5: damage, time-outs and changed disks are never told as absence.

A node that has said of an entry that it is on its disk never says ABSENT of it afterwards, not
even if that disk was harmed: then it says CORRUPT or UNKNOWN, until what it lost is made good.
What it says to have after that counts again.
"""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from sim.laws.state.wire import DoubtEnded, EntryStored, Fact, Said


@attrs.define
class AbsenceIsTrue:
    """Keeps what each instance has said to be on its disk, and when it first did."""

    _stored: dict[InstanceId, dict[tuple[LedgerId, EntryId], int]] = attrs.field(factory=dict)

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare what was said since the last look with what was said before."""
        for fact in facts:
            match fact:
                case EntryStored():
                    stored = self._stored.setdefault(fact.instance, {})
                    stored.setdefault((fact.ledger, fact.entry), fact.at)
                case Said(answer=Answer.HAVE, body_crc=None):
                    # Of a probe, which is answered when all that was appended is on disk.
                    stored = self._stored.setdefault(fact.instance, {})
                    stored.setdefault((fact.ledger, fact.entry), fact.at)
                case Said(answer=Answer.ABSENT):
                    stored_at = self._stored.get(fact.instance, {}).get(
                        (fact.ledger, fact.entry)
                    )
                    if stored_at is not None and stored_at < fact.asked_at:
                        yield (
                            f"node {fact.instance} says that entry {fact.entry} of ledger"
                            f" {fact.ledger} is absent; it has said that it is on its disk"
                        )
                case DoubtEnded(instance):
                    self._stored.pop(instance, None)
