"""Law 5, and 4: no ledger is closed below an entry that was answered OK, before or after."""

from collections.abc import Iterator

import attrs

from geolog.protocol.ledger_state import LedgerState
from sim.laws.seen import Look


@attrs.define
class ClosedAboveOk:
    """Keeps the highest entry of each segment that was answered OK."""

    _highest: dict[int, int] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the state of now with all that was told."""
        for append in now.told:
            assert append.dlsn is not None
            segment, entry = append.dlsn.segment, append.dlsn.entry
            self._highest[segment] = max(entry, self._highest.get(segment, -1))
        for ledger, record in now.ledgers.items():
            if record.state is LedgerState.CLOSED and record.last_entry is not None:
                highest = self._highest.get(record.segment, -1) if record.segment else -1
                if highest > record.last_entry:
                    yield (
                        f"ledger {ledger} is closed at {record.last_entry}, and entry {highest}"
                        " of it was answered"
                    )
