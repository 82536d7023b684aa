"""Law 2, and 21: what was answered OK stays on the disks of an ack set of its fragment.

Also when nodes start again, which may have less on disk than they had in memory, and when the
ensemble changes: then the entry must be with the members that its record names now.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from sim.laws.copies import slots_with
from sim.laws.seen import Look, SegmentKey


@attrs.define
class CopiesStay:
    """Keeps what was answered of each ledger that is not closed, and its last fragment."""

    _told: dict[SegmentKey, set[EntryId]] = attrs.field(factory=dict)
    _fragments: dict[LedgerId, Fragment] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Look for the newest entry, and for all that another fragment has now."""
        for append in now.told:
            assert append.dlsn is not None
            entry = EntryId(append.dlsn.entry)
            self._told.setdefault(append.segment_key, set()).add(entry)
        for key, record in now.ledgers_by_segment().items():
            if record.state is LedgerState.CLOSED:
                self._told.pop(key, None)
                continue
            for entry in self._due(record, self._told.get(key, set())):
                fragment = record.fragment_of(entry)
                have = slots_with(now, record.ledger, entry, fragment)
                if not fragment.rule(record.quorum).is_ack(entry, have):
                    yield (
                        f"entry {entry} of ledger {record.ledger} was answered, and is on the"
                        f" disks of slots {have:b} of its fragment alone: they are no ack set"
                    )

    def _due(self, record: LedgerRecord, told: set[EntryId]) -> set[EntryId]:
        last = record.fragments[-1]
        before = self._fragments.get(record.ledger)
        self._fragments[record.ledger] = last
        if before is not None and before != last:
            return {entry for entry in told if entry >= last.first_entry}
        return {max(told)} if told else set()
