"""Law 9: a partition's list goes on without a gap, and only its last ledger is not CLOSED."""

from collections.abc import Iterator
from itertools import pairwise

import attrs

from geolog.protocol.ledger_state import LedgerState
from geolog.protocol.stream_state import SegmentRecord
from sim.laws.seen import Look


@attrs.define
class ListInOrder:
    """Keeps the list: what is completed never changes, and nothing leaves it."""

    _before: dict[int, SegmentRecord] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the list of now with what was seen before, and with its ledgers."""
        rows = sorted(now.segments.values(), key=lambda row: row.segment)
        for one, other in pairwise(rows):
            if one.last_sequence is None:
                yield f"segment {one.segment} is not completed, and {other.segment} follows it"
            elif other.first_sequence != one.last_sequence + 1:
                yield (
                    f"segment {other.segment} begins at sequence {other.first_sequence}, and"
                    f" {one.segment} ends at {one.last_sequence}"
                )
        for row in rows:
            ledger = now.ledgers.get(row.ledger)
            if ledger is None:
                yield f"segment {row.segment} has no ledger {row.ledger}"
            elif row.is_completed and (
                ledger.state is not LedgerState.CLOSED or ledger.last_entry != row.last_entry
            ):
                yield (
                    f"segment {row.segment} ends at entry {row.last_entry}; its ledger is"
                    f" {ledger.state.value} at {ledger.last_entry}"
                )
        for segment, before in self._before.items():
            if segment not in now.segments:
                yield f"segment {segment} has left the list"
            elif before.is_completed and now.segments[segment] != before:
                yield f"segment {segment} was completed as {before}, and is another"
        for append in now.told:
            if append.dlsn is not None and append.dlsn.segment not in now.segments:
                yield f"{append.dlsn} was answered, and its segment is not in the list"
        self._before = dict(now.segments)
