"""Round trips to regions, and the nearest of them, against a naive model."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from topology.region_round_trips import (
    ANSWERS_MIN,
    CLEARLY_NEARER,
    KEPT_MAX,
    KEPT_S,
    SILENT_MIN,
    RegionRoundTrips,
)

REGIONS = ["a", "b", "c"]

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, KEPT_S / 2]),
        st.sampled_from(REGIONS),
        st.one_of(st.none(), st.sampled_from([0.001, 0.02, 0.08, 0.1, 0.3])),
    ),
    max_size=60,
)


def naive_nearest(told: list[tuple[float, str, float | None]], now_s: float) -> str | None:
    """The rule, in words: told is (when, region, round trip or silence)."""
    distances = []
    for region in REGIONS:
        of_region = [took_s for _, one, took_s in told if one == region]
        answers = [(at, took_s) for at, one, took_s in told if one == region and took_s]
        fresh = [took_s for at, took_s in answers[-KEPT_MAX:] if at > now_s - KEPT_S]
        is_silent = len(of_region) >= SILENT_MIN and not any(of_region[-SILENT_MIN:])
        if len(fresh) < ANSWERS_MIN and not is_silent:
            return None
        if fresh:
            distances.append((median(fresh), region))
    return min(distances)[1] if distances else None


@given(STEPS)
def test_the_nearest_region_is_that_of_the_rule_in_words(
    steps: list[tuple[float, str, float | None]],
) -> None:
    trips, told, now_s = RegionRoundTrips(), list[tuple[float, str, float | None]](), 0.0
    for pause_s, region, took_s in steps:
        now_s += pause_s
        told.append((now_s, region, took_s))
        if took_s is None:
            trips.note_silent(region)
        else:
            trips.note(region, took_s, now_s)

        assert trips.nearest(REGIONS, now_s) == naive_nearest(told, now_s)
        assert trips.is_silent(region) == (took_s is None)


def measured(trips_s: dict[str, float]) -> RegionRoundTrips:
    trips = RegionRoundTrips()
    for region, took_s in trips_s.items():
        for _ in range(KEPT_MAX):
            trips.note(region, took_s, 0.0)
    return trips


def test_a_place_stays_until_another_region_is_clearly_nearer() -> None:
    similar = measured({"a": 0.010, "b": 0.010 * CLEARLY_NEARER})
    nearer = measured({"a": 0.010, "b": 0.009 * CLEARLY_NEARER})

    assert similar.nearest("ab", 0.0) == "b"
    assert similar.nearest("ab", 0.0, place="a") == "a"
    assert nearer.nearest("ab", 0.0, place="a") == "b"
    assert nearer.nearest("ab", 0.0, place="gone") == "b"


def test_no_region_is_the_nearest_of_none() -> None:
    assert measured({}).nearest([], 0.0) is None


def test_a_round_trip_counts_for_a_while() -> None:
    trips = measured({"a": 0.01})

    assert (trips.median_s("a", KEPT_S - 1), trips.last_s("a", KEPT_S - 1)) == (0.01, 0.01)
    assert (trips.median_s("a", KEPT_S), trips.last_s("a", KEPT_S)) == (None, None)
    assert (trips.count("a", 0.0), trips.count("b", 0.0)) == (KEPT_MAX, 0)
