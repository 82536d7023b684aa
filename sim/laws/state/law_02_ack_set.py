"""Law 2: when an OK is given, nodes that have synced the entry form a valid ack set.

A node that is down may have it on its disk: it gets the benefit of the doubt, and so does one
whose disk was harmed.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.ids import EntryId
from sim.laws.state.copies import slots_with
from sim.laws.state.seen import Look


@attrs.define
class AckSet:
    """Looks at each OK once, within a tenth of a second."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the state of now with what was told since the last look."""
        by_segment = now.ledgers_by_segment()
        for append in now.told:
            assert append.dlsn is not None
            record = by_segment.get(append.segment_key)
            if record is None:
                continue
            entry = EntryId(append.dlsn.entry)
            fragment = record.fragment_of(entry)
            have = slots_with(now, record.ledger, entry, fragment)
            if not fragment.rule(record.quorum).is_ack(entry, have):
                yield f"entry {entry} of ledger {record.ledger} was answered: no ack set has it"
