"""Laws 5 and 4: no ledger is closed below an entry acknowledged before or afterwards."""

from collections.abc import Iterator

import attrs

from sim.laws.state.seen import Look, SegmentKey, partition_of


@attrs.define
class ClosedAboveOk:
    """Keeps the highest acknowledged entry of each segment."""

    _highest: dict[SegmentKey, int] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current records with all acknowledged entries."""
        for append in now.told:
            assert append.dlsn is not None
            key, entry = append.segment_key, append.dlsn.entry
            self._highest[key] = max(entry, self._highest.get(key, -1))
        for ledger, record in now.ledgers.items():
            if not now.is_of_home(record):
                continue
            if record.segment and record.last_entry is not None:
                highest = self._highest.get((partition_of(record), record.segment), -1)
                closed_at = record.numbering.in_segment(record.last_entry)
                if highest > closed_at:
                    yield (
                        f"ledger {ledger} is closed at entry {closed_at} of its segment, but"
                        f" entry {highest} was acknowledged"
                    )
