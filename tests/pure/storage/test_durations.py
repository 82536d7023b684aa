"""Counted durations against the sorted list of them."""

from hypothesis import given
from hypothesis import strategies as st

from regions.storage.durations import Durations


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_are_at_most_twice_the_true_ones(durations_s: list[float]) -> None:
    durations = Durations()
    for duration_s in durations_s:
        durations.note(duration_s)

    found = durations.statistics()

    ordered = sorted(durations_s)
    true_p50_s = ordered[(len(ordered) - 1) // 2]
    assert found.count == len(durations_s)
    assert found.max_s == ordered[-1]
    assert true_p50_s - 1e-6 <= found.p50_s <= max(2 * true_p50_s, 1e-6)


def test_nothing_noted_is_nothing() -> None:
    assert Durations().statistics().p99_s == 0.0
