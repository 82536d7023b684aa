"""The time that entries get: near the metadata store's, whatever the owner's clock says."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.append_clock import (
    AHEAD_US_MAX,
    AppendClock,
    ClockAhead,
    ClockNotice,
    ClockRight,
)
from geolog.protocol.ids import Sequence
from geolog.protocol.sequencer import Sequencer

MINUTE_US = 60_000_000
METADATA_US = 1_700_000_000_000_000


def read(clock: AppendClock, minutes_ahead: float) -> tuple[float, ClockNotice | None]:
    """What an entry gets whose owner's clock is so far ahead, in minutes ahead as well."""
    local_us = METADATA_US + round(minutes_ahead * MINUTE_US)
    time_us, notice = clock.read(local_us=local_us, metadata_us=METADATA_US)
    return (time_us - METADATA_US) / MINUTE_US, notice


def test_a_clock_that_is_near_or_behind_is_believed() -> None:
    clock = AppendClock()

    for minutes in (0, 4.9, 5, -60, -1_000_000):
        assert read(clock, minutes) == (minutes, None)


def test_a_clock_that_is_far_ahead_is_held_back_and_told_once() -> None:
    clock = AppendClock()

    assert read(clock, 60) == (5, ClockAhead(60 * MINUTE_US))
    assert read(clock, 60.5) == (5, None)
    assert clock.is_held_back


def test_it_is_told_again_when_it_has_changed_and_when_it_is_right() -> None:
    clock = AppendClock()
    read(clock, 60)

    assert read(clock, 600) == (5, ClockAhead(600 * MINUTE_US))
    assert read(clock, 0) == (0, ClockRight())
    assert not clock.is_held_back
    assert read(clock, 600) == (5, ClockAhead(600 * MINUTE_US))


def test_a_clock_at_the_limit_is_not_told_at_each_step_over_it() -> None:
    clock = AppendClock()
    told = [read(clock, minutes)[1] for minutes in (5.01, 4.99, 5.01, 4.99, 5.01)]

    assert [one for one in told if one is not None] == [ClockAhead(round(5.01 * MINUTE_US))]


CLOCKS = st.lists(
    st.tuples(st.integers(0, 10**10), st.integers(-(10**11), 10**11)), min_size=1, max_size=30
)


@given(CLOCKS, st.integers(-(10**11), 10**11))
def test_append_times_never_decrease_and_are_near_the_metadata_store_unless_they_were_not(
    steps: list[tuple[int, int]], before_ahead_us: int
) -> None:
    """Each step: how long it takes, and how far the owner's clock is ahead then."""
    clock = AppendClock()
    before_us = METADATA_US + before_ahead_us
    sequencer = Sequencer(Sequence(0), append_time_us_last=before_us)
    times, naive, metadata_us, highest_us = [], [], METADATA_US, before_us
    for took_us, ahead_us in steps:
        metadata_us += took_us
        now_us, _ = clock.read(local_us=metadata_us + ahead_us, metadata_us=metadata_us)
        times.append(sequencer.assign(1, now_us=now_us).append_time_us)
        highest_us = max(highest_us, metadata_us + min(ahead_us, AHEAD_US_MAX))
        naive.append(highest_us)

        assert times[-1] <= max(metadata_us + AHEAD_US_MAX, before_us)

    assert times == naive
    assert all(one <= other for one, other in itertools.pairwise(times))
