"""The dense sequence of a partition, and append times that never decrease.

Rules: PROTOCOL S1 and S2.
"""

import attrs

from geolog.protocol.ids import Sequence


@attrs.frozen
class Assigned:
    """The first record's sequence, and the append time, that a batch is given.

    One without records, a fence, is given the sequence of the next record.
    """

    first_sequence: Sequence
    append_time_us: int


@attrs.define
class Sequencer:
    """Assigns sequences without gaps, and append times that follow the clock but never fall.

    Invariants: each `first_sequence` is the previous one plus its record count;
    `append_time_us` never falls, whatever the clock does.
    """

    sequence_next: Sequence
    append_time_us_last: int = 0

    def assign(self, record_count: int, *, now_us: int) -> Assigned:
        """Number the next batch, which holds `record_count` records."""
        assert record_count > 0, f"a batch holds at least one record, not {record_count}"
        self.append_time_us_last = max(self.append_time_us_last, now_us)
        assigned = Assigned(self.sequence_next, self.append_time_us_last)
        self.sequence_next = Sequence(self.sequence_next + record_count)
        return assigned

    def assign_none(self, *, now_us: int) -> Assigned:
        """Give a fence an append time; it holds no record, and takes no sequence.

        The time is above 0, whatever the clock, so that it shows that the entry exists.
        """
        self.append_time_us_last = max(self.append_time_us_last, now_us, 1)
        return Assigned(self.sequence_next, self.append_time_us_last)
