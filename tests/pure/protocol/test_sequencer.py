"""Sequences without gaps, and times that never go back."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Sequence
from geolog.protocol.sequencer import Assigned, Sequencer

ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(-5, 10**16)), min_size=1)


@given(st.integers(0, 2**40), ENTRIES)
def test_each_record_gets_the_next_number_and_no_earlier_time(
    first: int, entries: list[tuple[int, int]]
) -> None:
    sequencer = Sequencer(Sequence(first))
    assigned = [sequencer.assign(count, now_us=now_us) for count, now_us in entries]
    numbers = [
        one.first_sequence + place
        for one, (count, _now_us) in zip(assigned, entries, strict=True)
        for place in range(count)
    ]
    highest_us = itertools.accumulate((now_us for _count, now_us in entries), max, initial=0)

    assert numbers == list(range(first, first + len(numbers)))
    assert [one.append_time_us for one in assigned] == list(highest_us)[1:]


def test_times_stand_still_while_the_clock_is_behind() -> None:
    sequencer = Sequencer(Sequence(7), append_time_us_last=1_000)

    assert sequencer.assign(2, now_us=400) == Assigned(Sequence(7), 1_000)
    assert sequencer.assign(1, now_us=1_400) == Assigned(Sequence(9), 1_400)


def test_an_entry_without_records_fails_an_assertion() -> None:
    with pytest.raises(AssertionError, match="at least one record, not 0"):
        Sequencer(Sequence(0)).assign(0, now_us=1)


def test_an_entry_that_takes_no_sequence_has_a_time_whatever_the_clock() -> None:
    sequencer = Sequencer(Sequence(7))

    assert sequencer.assign_none(now_us=-5) == Assigned(Sequence(7), 1)
    assert sequencer.assign_none(now_us=900) == Assigned(Sequence(7), 900)
    assert sequencer.assign(2, now_us=400) == Assigned(Sequence(7), 900)
