"""The report of a benchmark of hedged reads, from reads that are known."""

import math
from xml.etree import ElementTree

import pytest

from sim.processes.bench.figures import Figure
from sim.processes.bench.hedge.hedge import HedgeReport, StageShare, report_of
from sim.processes.bench.hedge.latency_plot import latency_svg
from sim.processes.bench.hedge.reads import CostSample, PolicyReads

RATE = 100
POLICIES = ("auto", "off", "bookkeeper")
SCENARIOS = ("healthy", "stalls", "cut off", "paused", "all slow")
FAST_S, STALLED_S = 0.001, 0.5


def reads_of(
    *late: tuple[float, float, float], duration_s: int = 20, extra: tuple[int, ...] = (0, 0)
) -> PolicyReads:
    """Fast reads at a steady rate; `late`: from, to, and how long every tenth takes then."""
    begun_s = [number / RATE for number in range(duration_s * RATE)]
    took_s = [FAST_S] * len(begun_s)
    for from_s, to_s, late_s in late:
        for number in range(0, len(begun_s), 10):
            if from_s <= begun_s[number] < to_s:
                took_s[number] = late_s
    costs = [CostSample(0.0, 0, ()), CostSample(duration_s, len(begun_s), extra)]
    return PolicyReads(begun_s, took_s, 0, costs)


def reported(
    scenario: str, *, auto: PolicyReads, off: PolicyReads, at_s: float = 0.0
) -> HedgeReport:
    """A report in which only one scenario is not well."""
    well = dict.fromkeys(POLICIES, reads_of())
    reads = dict.fromkeys(SCENARIOS, well)
    reads[scenario] = {"auto": auto, "off": off, "bookkeeper": off}
    return report_of(reads, dict.fromkeys(SCENARIOS, at_s), round_trip_s=0.04, rate_per_s=RATE)


def figure_of(report: HedgeReport, name: str) -> Figure:
    (found,) = [each for each in report.figures if each.name == name]
    return found


def test_stalls_are_compared_at_the_999th_of_a_thousand() -> None:
    stalled = reads_of((0, 20, STALLED_S))
    report = reported("stalls", auto=reads_of(extra=(60, 4)), off=stalled)

    assert figure_of(report, "stalls: p99.9 of off against auto").value == pytest.approx(
        STALLED_S / FAST_S, rel=0.01
    )
    assert figure_of(report, "stalls: extra requests").value == pytest.approx(100 * 64 / 2000)
    assert figure_of(report, "stalls, off: p99.9").value == pytest.approx(500, rel=0.01)


def test_equal_medians_differ_by_nothing() -> None:
    report = reported("stalls", auto=reads_of(), off=reads_of((0, 20, STALLED_S)))
    difference = figure_of(report, "stalls: p50 of auto minus off")

    assert difference.value == 0
    assert difference.goal == "0 within +-0.000"


def test_a_cut_is_held_against_the_round_trip_and_the_first_delay() -> None:
    report = reported("cut off", auto=reads_of((5, 20, 0.045)), off=reads_of(), at_s=5)
    found = figure_of(report, "cut off: p99 of auto")

    assert found.value == pytest.approx(45, rel=0.01)
    assert (found.floor, found.goal) == (41, "<= 46.0 ms")


def test_a_case_alone_is_reported_without_the_others() -> None:
    well = dict.fromkeys(POLICIES, reads_of())
    reads = {"healthy": well, "all slow": well}
    report = report_of(reads, dict.fromkeys(reads, 0.0), round_trip_s=0.04, rate_per_s=RATE)

    assert {each.scenario for each in report.latencies} == set(reads)
    assert figure_of(report, "all slow: extra requests of auto").goal == "<= 4 % (3 % + 1/s)"
    assert not [each for each in report.figures if each.name.startswith("cut off")]


def test_a_pause_is_over_when_every_later_second_is_fast() -> None:
    paused = reads_of((2, 5.5, 2.0), (16, 17, 0.0015))
    report = reported("paused", auto=paused, off=reads_of((2, 20, 2.0)), at_s=2)

    assert figure_of(report, "paused: p99 of auto is <= 2 x healthy after").value == 4
    assert figure_of(report, "paused: p99 of auto from 10 s on").ratio == pytest.approx(1.5)
    assert figure_of(report, "paused: p99 of off from 10 s on").ratio == pytest.approx(
        2000, rel=0.01
    )


def test_stages_say_how_much_rarer_each_request_was() -> None:
    report = reported("healthy", auto=reads_of(extra=(40, 2)), off=reads_of(extra=()))

    assert [each for each in report.stages if each.policy == "auto"] == [
        StageShare("healthy", "auto", 1, 1.0, None),
        StageShare("healthy", "auto", 2, 0.02, 50.0),
        StageShare("healthy", "auto", 3, 0.001, 20.0),
    ]
    assert [each.request for each in report.stages if each.policy == "off"] == [1]


def test_costs_between_two_samples_are_counted() -> None:
    before, after = CostSample(1.0, 100, (3,)), CostSample(2.0, 300, (9, 1))

    assert after.since(before) == CostSample(2.0, 200, (6, 1))
    assert after.since(before).extra_share == 7 / 200
    assert PolicyReads([], [], 0, []).cost.extra_share == 0


def test_reads_without_any_in_the_time_asked_for_are_reported_as_none() -> None:
    report = reported("paused", auto=reads_of(duration_s=5), off=reads_of(), at_s=0)

    assert "paused: p99 of auto from 10 s on" not in {each.name for each in report.figures}
    assert math.isfinite(figure_of(report, "paused, auto: p99").value)


def test_the_plot_has_a_panel_for_each_scenario_and_a_line_for_each_policy() -> None:
    report = reported("stalls", auto=reads_of(), off=reads_of((0, 20, STALLED_S)))
    root = ElementTree.fromstring(report.svg())
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in root.iter(f"{space}text")]

    assert set(SCENARIOS) <= set(texts)
    assert set(POLICIES) <= set(texts)
    assert len(list(root.iter(f"{space}polyline"))) == len(SCENARIOS) * len(POLICIES)


def test_a_plot_keeps_within_its_panel_and_escapes_names() -> None:
    svg = latency_svg("a < b", {"x & y": {"auto": [1e-9, 0.001, 1e6], "off": []}})
    root = ElementTree.fromstring(svg)
    lines = [
        each.get("points", "") for each in root.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.split()]

    assert len(points) == 6
    assert all(64 <= x <= 64 + 380 and 58 <= y <= 58 + 190 for x, y in points)
