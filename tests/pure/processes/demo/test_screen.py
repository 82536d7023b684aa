"""The output of a demo: whole lines on a terminal of 80 columns, and what to do next, twice."""

from pathlib import Path

import pytest

from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.demo.screen import WIDTH_MAX, Screen
from sim.processes.wan.profile import default_wan


def plan_of_default() -> ClusterPlan:
    wan = default_wan(ClusterShape().regions)
    shape = ClusterShape(proxies_per_region=2, relays_per_region=2, wan=wan)
    ports = list(range(20_000, 20_000 + shape.ports_count))
    return draw_plan(shape, cluster="demo", directory=Path("/tmp/demo"), ports=ports)


def test_only_a_call_that_is_longer_than_a_line_is_cut_by_its_edge(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, plan = Screen(), plan_of_default()
    screen.starting(plan)
    screen.banner(plan, 15.0)
    lines = capsys.readouterr().out.splitlines()
    long = [line.split()[0] for line in lines if len(line.rstrip()) > WIDTH_MAX]

    assert long == ["curl", "echo"]
    assert "  # append over HTTP:" in lines
    assert lines[1].endswith("in 3 regions …")


def test_the_next_steps_stand_below_the_story_too(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().staying(plan_of_default(), stream="demo/flights")
    told = capsys.readouterr().out

    assert "append demo/flights" in told
    assert "read demo/flights --region ap-northeast" in told
    assert "The cluster runs until Ctrl-C." in told
