"""Law 7: a node that fenced a ledger takes no more adds from its writer, harmed or not."""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import InstanceId, LedgerId
from sim.laws.state.seen import Look
from sim.laws.state.wire import DoubtEnded, EntryStored, Promised


@attrs.define
class FencedTakesNoAdds:
    """Keeps when each instance first answered that a ledger is fenced; none is excused."""

    _fenced: dict[InstanceId, dict[LedgerId, int]] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the facts since the last look with earlier ones."""
        for fact in now.said:
            match fact:
                case Promised(is_fenced=True):
                    fenced = self._fenced.setdefault(fact.instance, {})
                    fenced.setdefault(fact.ledger, fact.at)
                case DoubtEnded(instance):
                    fenced = self._fenced.get(instance, {})
                    self._fenced[instance] = {
                        ledger: at for ledger, at in fenced.items() if ledger in now.ledgers
                    }
                case EntryStored(is_recovery=False) if self._was_fenced(fact):
                    yield (
                        f"node {fact.instance} fenced ledger {fact.ledger}, then took entry"
                        f" {fact.entry} from its writer"
                    )

    def _was_fenced(self, stored: EntryStored) -> bool:
        """Whether the fence was answered before the add reached the node."""
        at = self._fenced.get(stored.instance, {}).get(stored.ledger)
        return at is not None and at < stored.taken_at
