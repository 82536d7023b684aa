"""Law 2: when an append is acknowledged, the nodes that synced the entry form an ack set.

A node that is down, or whose disk was harmed, gets the benefit of the doubt.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import SegmentEntry
from sim.laws.state.copies import slots_with
from sim.laws.state.seen import Look


@attrs.define
class AckSet:
    """Checks each acknowledgement once, within a tenth of a second."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the answers since the last look against the current state."""
        by_segment = now.ledgers_by_segment()
        for append in now.told:
            assert append.dlsn is not None
            record = by_segment.get(append.segment_key)
            if record is None:
                continue
            entry = record.numbering.in_ledger(SegmentEntry(append.dlsn.entry))
            fragment = record.fragment_of(entry)
            have = slots_with(now, record.ledger, entry, fragment)
            if not fragment.rule(record.quorum).is_ack(entry, have):
                yield (
                    f"entry {entry} of ledger {record.ledger} was acknowledged, but no ack set"
                    " has it"
                )
