"""Hedge policies: when each request goes out, and how they are named."""

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.hedge_policy import (
    AUTO,
    BOOKKEEPER,
    MEDIANS_MAX,
    OFF,
    PAUSE_S_MIN,
    UNKNOWN_REMOTE_S,
    UNKNOWN_S,
    FixedPolicy,
    HedgeMoment,
    HedgePolicy,
    SlaPolicy,
    format_s,
    parse_hedge,
)
from topology.errors import InvalidArgumentError


@attrs.frozen
class Known:
    """A route whose percentiles are proportional to its slowest answer."""

    median: float | None
    slowest: float | None = None
    is_remote: bool = False

    def median_s(self) -> float | None:
        return self.median

    def percentile_s(self, percentile: float) -> float | None:
        if self.median is None or self.slowest is None:
            return self.median
        return self.median + (self.slowest - self.median) * (percentile - 50) / 50


UNKNOWN = Known(None)
NEAR = Known(0.001, 0.004)
FAR = Known(0.080, 0.090, is_remote=True)


def sent_at(policy: HedgePolicy, *routes: Known) -> list[float]:
    """When a question that nobody answers goes to each replica, in milliseconds."""
    sent, pause_s = [0.0], 0.0
    while len(sent) < len(routes):
        found = policy.pause_s(HedgeMoment(routes, len(sent), sent[-1], pause_s))
        if found is None:
            break
        pause_s = found
        sent.append(sent[-1] + pause_s)
    return [round(at_s * 1000, 2) for at_s in sent]


def test_auto_waits_for_a_late_percentile_and_then_at_least_twice_as_long() -> None:
    assert sent_at(AUTO, NEAR, NEAR, FAR, FAR) == [0.0, 3.88, 11.64, 101.24]


def test_a_route_that_is_often_slow_does_not_hide_behind_its_percentile() -> None:
    often_late = Known(0.002, 2.0)

    assert sent_at(AUTO, often_late, NEAR) == [0.0, 2 * MEDIANS_MAX]


def test_auto_waits_a_millisecond_at_least_and_a_default_for_routes_it_does_not_know() -> None:
    assert sent_at(AUTO, Known(0.0001, 0.0002), NEAR) == [0.0, 1.0]
    assert sent_at(AUTO, UNKNOWN, NEAR) == [0.0, UNKNOWN_S * 1000]
    assert sent_at(AUTO, Known(None, is_remote=True), NEAR) == [0.0, UNKNOWN_REMOTE_S * 1000]


def test_off_never_asks_twice() -> None:
    assert sent_at(OFF, NEAR, NEAR, FAR) == [0.0]


def test_a_fixed_time_doubles() -> None:
    assert sent_at(parse_hedge("25ms"), NEAR, NEAR, FAR, FAR) == [0.0, 25.0, 75.0, 175.0]


def test_bookkeepers_policy_waits_two_seconds_and_cancels_nothing() -> None:
    assert sent_at(BOOKKEEPER, NEAR, NEAR, FAR) == [0.0, 2000.0, 6000.0]
    assert not BOOKKEEPER.terms.cancels_losers
    assert not BOOKKEEPER.terms.is_budgeted


def test_an_sla_leaves_the_last_request_time_for_an_answer() -> None:
    near = Known(0.005)

    assert sent_at(parse_hedge("sla:50ms"), near, near) == [0.0, 45.0]
    assert sent_at(parse_hedge("sla:50ms"), near, near, near) == [0.0, 15.0, 45.0]


def test_an_sla_ignores_replicas_that_cannot_keep_it() -> None:
    near = Known(0.005)

    assert sent_at(parse_hedge("sla:50ms"), near, near, FAR)[:2] == [0.0, 45.0]
    assert sent_at(parse_hedge("sla:50ms"), FAR, FAR, FAR)[:2] == [0.0, 1.0]


ROUTES = st.lists(
    st.builds(
        Known,
        median=st.none() | st.floats(0.0001, 0.3),
        slowest=st.none() | st.floats(0.3, 3.0),
        is_remote=st.booleans(),
    ),
    min_size=2,
    max_size=6,
)


@given(ROUTES, st.floats(0.002, 60.0))
def test_an_sla_places_two_extra_requests_in_time_wherever_that_is_possible(
    routes: list[Known], sla_s: float
) -> None:
    sent = sent_at(SlaPolicy(sla_s, "sla"), *routes)
    for extra in (1, 2):
        if extra < len(routes):
            default_s = UNKNOWN_REMOTE_S if routes[extra].is_remote else UNKNOWN_S
            late_s, median_s = routes[extra].percentile_s(90), routes[extra].median
            usual_s = (
                default_s
                if late_s is None or median_s is None
                else max(PAUSE_S_MIN, min(late_s, MEDIANS_MAX * median_s))
            )
            latest = (sla_s - usual_s) * 1000
            if latest > sent[extra - 1] + 1:
                assert sent[extra] <= latest + 1


@given(ROUTES)
def test_auto_asks_at_growing_distances(routes: list[Known]) -> None:
    sent = sent_at(AUTO, *routes)
    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]

    assert all(pause >= 1.0 for pause in pauses)
    assert all(later >= 2 * earlier - 0.05 for earlier, later in itertools.pairwise(pauses))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("auto", AUTO),
        ("off", OFF),
        ("25ms", FixedPolicy(0.025, "25ms")),
        ("1.5 ms", FixedPolicy(0.0015, "1.5ms")),
        (" 25ms ", FixedPolicy(0.025, "25ms")),
        ("2s", FixedPolicy(2.0, "2s")),
        ("sla:50ms", SlaPolicy(0.05, "sla:50ms")),
    ],
)
def test_a_policy_is_parsed_from_its_name(text: str, policy: HedgePolicy) -> None:
    parsed = parse_hedge(text)

    assert parsed == policy
    assert parse_hedge(parsed.name) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("atuo", "did you mean 'auto'"),
        ("of", "did you mean 'off'"),
        ("25", "no unit: use 25ms"),
        ("sla:50", "no unit: use sla:50ms"),
        ("sla:soon", "write it as sla:50ms"),
        ("0.2ms", "out of range, 1ms to 10s: use 1ms"),
        ("60s", "out of range, 1ms to 10s: use 10s"),
        ("25m", r"'25m' \(m is minutes\) is out of range, 1ms to 10s: use 25ms"),
        ("0", "asks again at once: the shortest time is 1ms; off never asks again"),
        ("0ms", "asks again at once: the shortest time is 1ms"),
        ("sla:0ms", "the shortest time is sla:2ms"),
        ("5 sec", "'5 sec': write 5s"),
        ("25 sec", "'25 sec': write 10s"),
        ("25MS", "'25MS': write 25ms"),
        ("25 parsecs", "has the unit 'parsecs': use 25ms"),
        ("OFF", "did you mean 'off'"),
        ("xyz", "use auto, .*; 'auto' is the default"),
        ("  ", "hedge is empty: use auto, off"),
        ("sla:1ms", "out of range, sla:2ms to sla:60s: use sla:2ms"),
        ("", "use auto, off, a time .e.g. 25ms., or sla:50ms"),
        ("-5ms", "'-5ms' is negative: the shortest time is 1ms; off never asks again"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_nearest_right_one(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_hedge(text)


@given(st.floats(0.001, 10.0))
def test_times_are_written_as_they_are_read(time_s: float) -> None:
    policy = parse_hedge(format_s(time_s))

    assert isinstance(policy, FixedPolicy)
    assert policy.first_s == pytest.approx(time_s, rel=1e-4)
