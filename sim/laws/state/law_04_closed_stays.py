"""Law 4: a ledger closed at an entry stays closed there, under the epoch that closed it."""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.laws.state.seen import Look


@attrs.define
class ClosedStays:
    """Keeps each ledger's record: epochs never fall, and states never go back."""

    _before: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current records with those seen before."""
        for ledger, before in self._before.items():
            record = now.ledgers.get(ledger)
            if record is None:
                continue
            if record.epoch < before.epoch:
                yield f"ledger {ledger} fell from epoch {before.epoch} to {record.epoch}"
            if before.state is LedgerState.CLOSED and record.last_entry != before.last_entry:
                yield (
                    f"ledger {ledger} was closed at {before.last_entry}, and is now"
                    f" {record.state.value} at {record.last_entry}"
                )
        self._before = dict(now.ledgers)
