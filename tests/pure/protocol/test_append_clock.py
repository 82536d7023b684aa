"""Append times stay near the metadata store's clock, whatever the owner's clock says."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.append_clock import (
    AHEAD_US_MAX,
    ASK_AGAIN_S,
    RETRY_S,
    AppendClock,
    AskStore,
    ClockAhead,
    ClockEffect,
    ClockRight,
)
from geolog.protocol.ids import Sequence
from geolog.protocol.sequencer import Sequencer

MINUTE_US = 60_000_000
METADATA_US = 1_700_000_000_000_000


def read(
    clock: AppendClock, minutes_ahead: float, now_s: float = 0.0
) -> tuple[float, list[ClockEffect]]:
    """How far ahead an entry's time is, in minutes, if its owner's clock is so far ahead."""
    local_us = METADATA_US + round(minutes_ahead * MINUTE_US)
    time_us, effects = clock.read(local_us=local_us, metadata_us=METADATA_US, now_s=now_s)
    return (time_us - METADATA_US) / MINUTE_US, effects


def asked(clock: AppendClock, minutes_ahead: float, now_s: float = 0.0) -> list[ClockEffect]:
    """The reports once the store has confirmed that the clock is so far ahead."""
    clock.on_asked(is_answered=True, now_s=now_s)
    return read(clock, minutes_ahead, now_s)[1]


def test_a_clock_that_is_near_or_behind_is_believed() -> None:
    clock = AppendClock()

    for minutes in (0, 4.9, 5, -60, -1_000_000):
        assert read(clock, minutes) == (minutes, [])


def test_a_clock_far_ahead_is_held_back_and_reported_once_the_store_answers() -> None:
    clock = AppendClock()

    assert read(clock, 60) == (5, [AskStore()])
    assert read(clock, 60) == (5, [])
    assert asked(clock, 60) == [ClockAhead(60 * MINUTE_US)]
    assert read(clock, 60.5) == (5, [])


def test_a_host_that_slept_is_believed_again_without_a_warning() -> None:
    clock = AppendClock()

    assert read(clock, 480) == (5, [AskStore()])
    assert asked(clock, 0) == []
    assert read(clock, 0) == (0, [])


def test_the_store_is_asked_again_before_a_second_report() -> None:
    clock = AppendClock()
    read(clock, 60)
    asked(clock, 60)

    assert read(clock, 540, RETRY_S) == (5, [AskStore()])
    assert asked(clock, 60, RETRY_S) == []


def test_a_failed_question_is_repeated_soon() -> None:
    clock = AppendClock()
    read(clock, 60)
    clock.on_asked(is_answered=False, now_s=7.0)

    assert read(clock, 60, 7.0) == (5, [])
    assert read(clock, 60, 7.0 + RETRY_S) == (5, [AskStore()])
    assert asked(clock, 60, 9.0) == [ClockAhead(60 * MINUTE_US)]


def test_a_clock_that_is_held_back_is_compared_from_time_to_time() -> None:
    clock = AppendClock()
    read(clock, 60)
    asked(clock, 60)

    assert read(clock, 60, ASK_AGAIN_S - 1) == (5, [])
    assert read(clock, 60, ASK_AGAIN_S) == (5, [AskStore()])
    assert asked(clock, 60, ASK_AGAIN_S) == []
    assert read(clock, 60, ASK_AGAIN_S + RETRY_S) == (5, [])


def test_a_changed_difference_and_a_return_to_agreement_are_reported() -> None:
    clock = AppendClock()
    read(clock, 60)
    asked(clock, 60)

    assert read(clock, 600, RETRY_S) == (5, [AskStore()])
    assert asked(clock, 600) == [ClockAhead(600 * MINUTE_US)]
    assert read(clock, 0) == (0, [ClockRight()])
    assert read(clock, 600, RETRY_S) == (5, [AskStore()])
    assert asked(clock, 600) == [ClockAhead(600 * MINUTE_US)]


def test_a_clock_around_the_limit_is_not_reported_at_each_crossing() -> None:
    clock = AppendClock()
    read(clock, 5.01)
    told = [
        effect for minutes in (5.01, 4.99, 5.01, 4.99, 5.01) for effect in asked(clock, minutes)
    ]

    assert told == [ClockAhead(round(5.01 * MINUTE_US))]


CLOCKS = st.lists(
    st.tuples(st.integers(0, 10**10), st.integers(-(10**11), 10**11)), min_size=1, max_size=30
)


@given(CLOCKS, st.integers(-(10**11), 10**11))
def test_append_times_never_decrease_and_stay_near_the_metadata_store(
    steps: list[tuple[int, int]], before_ahead_us: int
) -> None:
    """Each step: its duration, and how far ahead the owner's clock is afterwards."""
    clock = AppendClock()
    before_us = METADATA_US + before_ahead_us
    sequencer = Sequencer(Sequence(0), append_time_us_last=before_us)
    times, naive, metadata_us, highest_us = [], [], METADATA_US, before_us
    for took_us, ahead_us in steps:
        metadata_us += took_us
        now_us, _ = clock.read(
            local_us=metadata_us + ahead_us, metadata_us=metadata_us, now_s=metadata_us / 1e6
        )
        times.append(sequencer.assign(1, now_us=now_us).append_time_us)
        highest_us = max(highest_us, metadata_us + min(ahead_us, AHEAD_US_MAX))
        naive.append(highest_us)

        assert times[-1] <= max(metadata_us + AHEAD_US_MAX, before_us)

    assert times == naive
    assert all(one <= other for one, other in itertools.pairwise(times))
