"""The dense sequence of a partition, and append times that never decrease.

Rules: PROTOCOL S1 and S2.
"""

import attrs

from geolog.protocol.ids import Sequence


@attrs.frozen
class Assigned:
    """What an entry gets: its first record's sequence, and its records' append time."""

    first_sequence: Sequence
    append_time_us: int


@attrs.define
class Sequencer:
    """Gives sequences without gap, and the clock's time unless it went back.

    Invariants: each `first_sequence` is the one before plus its count; `append_time_us` is
    never below the one before, whatever the clock does.
    """

    sequence_next: Sequence
    append_time_us_last: int = 0

    def assign(self, record_count: int, *, now_us: int) -> Assigned:
        """Number the next entry, which holds `record_count` records."""
        assert record_count > 0, f"an entry holds at least one record, not {record_count}"
        self.append_time_us_last = max(self.append_time_us_last, now_us)
        assigned = Assigned(self.sequence_next, self.append_time_us_last)
        self.sequence_next = Sequence(self.sequence_next + record_count)
        return assigned
