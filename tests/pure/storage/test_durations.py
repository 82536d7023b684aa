"""Counted durations against the sorted list of them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from regions.storage.durations import Durations


def noted(durations_s: list[float]) -> Durations:
    durations = Durations()
    for duration_s in durations_s:
        durations.note(duration_s)
    return durations


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_are_within_a_hundredth_of_the_true_ones(durations_s: list[float]) -> None:
    found = noted(durations_s).statistics()

    ordered = sorted(durations_s)
    true_p50_s = ordered[(len(ordered) - 1) // 2]
    assert found.count == len(durations_s)
    assert found.max_s == ordered[-1]
    assert math.isclose(found.p50_s, true_p50_s, rel_tol=0.01, abs_tol=1e-6)


def test_a_duration_over_the_range_still_counts_and_is_the_highest() -> None:
    found = noted([0.001, 5_000.0, 5_000.0]).statistics()

    assert (found.count, found.max_s) == (3, 5_000.0)
    assert 1_000.0 <= found.p50_s <= 5_000.0


def test_statistics_of_no_durations_are_zero() -> None:
    assert Durations().statistics().p99_s == 0.0
