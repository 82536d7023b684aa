"""Laws 2 and 21: an acknowledged entry stays on the disks of an ack set of its fragment.

That holds when nodes restart, with less on disk than they had in memory. It also holds when the
ensemble changes: then the members that the record now names must have the entry.
"""

from collections.abc import Iterator

import attrs
import trio

from geolog.protocol.ids import LedgerId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.laws.state.copies import slots_of, slots_with
from sim.laws.state.seen import Look, SegmentKey

_CLOSED_EVERY_S = 1.0
"""Closed ledgers are many, and rarely change."""


@attrs.define
class CopiesStay:
    """Keeps the acknowledged entries of each ledger, and the record that it had then."""

    _told: dict[SegmentKey, set[SegmentEntry]] = attrs.field(factory=dict)
    _records: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _closed_looked_s: float = -_CLOSED_EVERY_S

    def breaches(self, now: Look) -> Iterator[str]:
        """Check each ledger's newest entry, and all entries if its record changed."""
        is_closed_due = trio.current_time() - self._closed_looked_s >= _CLOSED_EVERY_S
        if is_closed_due:
            self._closed_looked_s = trio.current_time()
        for append in now.told:
            assert append.dlsn is not None
            place = SegmentEntry(append.dlsn.entry)
            self._told.setdefault(append.segment_key, set()).add(place)
        for key, record in now.ledgers_by_segment().items():
            told = self._told.get(key)
            before = self._records.get(record.ledger)
            self._records[record.ledger] = record
            has_changed = before is not None and before is not record
            is_due = has_changed or is_closed_due or record.state is not LedgerState.CLOSED
            if not told or not is_due:
                continue
            numbering = record.numbering
            for place in sorted(told) if has_changed else [max(told)]:
                entry = numbering.in_ledger(place)
                fragment = record.fragment_of(entry)
                have = slots_with(now, record.ledger, entry, fragment)
                if not fragment.rule(record.quorum).is_ack(entry, have):
                    yield (
                        f"entry {entry} of ledger {record.ledger} was acknowledged, but is on"
                        f" the disks of slots {slots_of(have)} only: not an ack set"
                    )
