"""Latencies of routes against a naive model, which keeps every answer with its time."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.route_latency import (
    ANSWERS_MIN,
    PERIOD_S,
    REREAD_S,
    ROUTES_MAX,
    RouteLatencies,
)


@attrs.define
class NaiveRoute:
    """All answers of a route, and the periods that its histograms would have had."""

    answers: list[tuple[float, float]] = attrs.field(factory=list)
    began_s: float | None = None

    def turned(self, now_s: float) -> None:
        if self.began_s is None:
            return
        if now_s >= self.began_s + 2 * PERIOD_S:
            self.began_s = now_s
            self.answers = []
        elif now_s >= self.began_s + PERIOD_S:
            kept_s = self.began_s
            self.began_s += PERIOD_S
            self.answers = [one for one in self.answers if one[0] >= kept_s]

    def note(self, took_s: float, now_s: float) -> None:
        self.began_s = now_s if self.began_s is None else self.began_s
        self.turned(now_s)
        self.answers.append((now_s, took_s))

    def percentile_s(self, percentile: float, now_s: float) -> float | None:
        self.turned(now_s)
        if len(self.answers) < ANSWERS_MIN:
            return None
        ranked = sorted(took_s for _, took_s in self.answers)
        rank = max(int(percentile * len(ranked) / 100 + 0.5), 1)
        return ranked[rank - 1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, REREAD_S, PERIOD_S / 2, 2.5 * PERIOD_S]),
        st.lists(st.floats(0.0001, 3.0), max_size=12),
        st.sampled_from([50.0, 98.0, 100.0]),
    ),
    max_size=20,
)


@given(STEPS)
def test_percentiles_are_those_of_the_last_one_or_two_periods(
    steps: list[tuple[float, list[float], float]],
) -> None:
    latencies, naive = RouteLatencies(), NaiveRoute()
    now_s = 100.0
    for pause_s, answers, percentile in steps:
        now_s += pause_s
        for took_s in answers:
            latencies.note("n1", took_s, now_s)
            naive.note(took_s, now_s)
        now_s += REREAD_S  # So that nothing remembered is used.
        found = latencies.percentile_s("n1", percentile, now_s)
        expected = naive.percentile_s(percentile, now_s)

        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found == pytest.approx(expected, rel=0.011, abs=2e-6)
        assert latencies.count("n1", now_s) == len(naive.answers)


def test_nothing_is_known_of_a_route_with_few_answers() -> None:
    latencies = RouteLatencies()
    for _ in range(ANSWERS_MIN - 1):
        latencies.note("n1", 0.1, 0.0)
    before = latencies.median_s("n1", 0.0)
    latencies.note("n1", 0.1, REREAD_S)

    assert before is None
    assert latencies.median_s("n1", REREAD_S) == pytest.approx(0.1, rel=0.01)
    assert latencies.median_s("n2", REREAD_S) is None


def test_a_percentile_is_computed_once_in_a_while() -> None:
    latencies = RouteLatencies()
    for _ in range(10):
        latencies.note("n1", 0.001, 0.0)
    first_s = latencies.percentile_s("n1", 98.0, 0.0)
    for _ in range(10):
        latencies.note("n1", 0.5, 0.1)

    assert latencies.percentile_s("n1", 98.0, REREAD_S - 0.1) == first_s
    assert latencies.percentile_s("n1", 98.0, REREAD_S) == pytest.approx(0.5, rel=0.01)


def test_a_route_that_nobody_uses_is_unknown_again() -> None:
    latencies = RouteLatencies()
    for _ in range(10):
        latencies.note("n1", 0.5, 0.0)

    assert latencies.median_s("n1", 2 * PERIOD_S - 0.1) is not None
    assert latencies.median_s("n1", 2 * PERIOD_S) is None


def test_the_number_of_routes_is_bounded_and_used_ones_stay() -> None:
    latencies = RouteLatencies(routes_max=3)
    for route in ("n1", "n2", "n3"):
        latencies.note(route, 0.1, 0.0)
    latencies.note("n1", 0.1, PERIOD_S)
    latencies.note("n4", 0.1, PERIOD_S)

    assert len(latencies) == 3
    assert latencies.count("n1", PERIOD_S) == 2
    assert latencies.count("n2", PERIOD_S) == 0
    assert ROUTES_MAX > 100


def test_an_answer_that_took_very_long_counts_as_a_minute() -> None:
    latencies = RouteLatencies()
    for _ in range(ANSWERS_MIN):
        latencies.note("n1", 1e6, 0.0)

    assert latencies.median_s("n1", 0.0) == pytest.approx(60, rel=0.01)
