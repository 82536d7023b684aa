"""Swarms: the coverage they count, how they end, and the output of the command."""

import json
import multiprocessing
from collections.abc import Iterator

import pytest

from geolog.cli.main import run
from sim.histories import judging
from sim.histories import run as histories_run
from sim.histories.run import SimReport, run_seed
from sim.histories.swarm import SwarmReport, run_swarm
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.named_worlds import WORLDS, options_of_world
from sim.world.faults.all_faults import FAULTS
from sim.world.history import Ending, History
from sim.world.options import Options
from sim.world.trace import EVENTS

SHORT = (3, 10)
"""Seeds with short histories and several kinds of faults."""

ONE_SHORT = f"{SHORT[0]}:{SHORT[0] + 1}"


@pytest.fixture(scope="module")
def alone() -> list[SimReport]:
    return [run_seed(seed) for seed in SHORT]


def test_a_swarm_adds_up_what_its_seeds_covered(alone: list[SimReport]) -> None:
    told: list[int] = []

    total = run_swarm(SHORT, jobs=2, on_seed=lambda so_far: told.append(so_far.seeds_count))

    assert told == [1, 2]
    assert total.events == sum(each.events for each in alone)
    assert total.reads == sum(each.reads for each in alone)
    assert sum(total.faults.values()) == sum(sum(each.faults.values()) for each in alone)
    assert total.sometimes["phase"] == 2
    assert set(total.faults_never_struck) | set(total.faults) == set(FAULTS)


def test_a_report_counts_the_lines_of_the_trace(alone: list[SimReport]) -> None:
    lines: list[str] = []

    assert run_seed(SHORT[0], write_line=lines.append) == alone[0]

    assert alone[0].events == len(lines)
    assert {line.split(" ", 3)[2] for line in lines} <= set(EVENTS)


def test_a_swarm_whose_time_is_over_starts_no_more_seeds(alone: list[SimReport]) -> None:
    begun: list[None] = []

    def is_time_over() -> bool:
        begun.append(None)
        return len(begun) > 1

    total = run_swarm(SHORT, jobs=1, on_seed=_ignore, is_time_over=is_time_over)

    assert total.seeds_count == 1
    assert total.events == alone[0].events


def test_an_interrupted_swarm_does_not_wait_for_its_histories() -> None:
    def interrupt(_total: SwarmReport) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_swarm(range(SHORT[0], 10**30), jobs=2, on_seed=interrupt)

    assert multiprocessing.active_children() == []


def test_a_time_too_short_for_any_seed_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["sim", "swarm", "--seeds", "0:3", "--for", "0s"]) == 2

    assert "30m" in capsys.readouterr().err


def test_the_command_exits_with_0_and_shows_the_coverage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["-o", "json", "sim", "swarm", "--seeds", ONE_SHORT]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == 1
    assert document["violations"] == []


def test_the_command_exits_with_10_and_names_the_replay_of_a_violation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_one(_history: History, _ending: Ending) -> Iterator[tuple[str, str]]:
        yield "7", "a fence is gone"

    monkeypatch.setattr(judging, "breaches", break_one)

    assert run(["sim", "swarm", "--seeds", ONE_SHORT]) == 10
    told = capsys.readouterr().err
    assert run(["sim", "replay", "--seed", str(SHORT[0])]) == 10
    trace = capsys.readouterr().out

    assert f"law 7: a fence is gone (geolog sim replay --seed {SHORT[0]})\n" in told
    assert " - violation 7 a fence is gone\n" in trace


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_of_a_kind_is_drawn_from_its_seed_and_has_relays(world: str) -> None:
    drawn = [options_of_world(world, seed, tuple(FAULTS)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]
    assert all(one.shape.relays_per_region for one in drawn)
    assert all(one.knobs.moves_rest_s_max for one in drawn if world == "moves")


def test_a_violation_in_a_world_of_a_kind_names_the_world_for_its_replay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_one(_history: History, _ending: Ending) -> Iterator[tuple[str, str]]:
        yield "7", "a fence is gone"

    def any_options(_world: str, seed: int, faults: tuple[str, ...]) -> Options:
        return options_of_seed(seed, faults)

    monkeypatch.setattr(judging, "breaches", break_one)
    monkeypatch.setattr(histories_run, "options_of_world", any_options)

    assert run(["sim", "swarm", "--seeds", ONE_SHORT, "--world", "moves"]) == 10
    told = capsys.readouterr().err
    assert f"(geolog sim replay --world moves --seed {SHORT[0]})\n" in told


@pytest.mark.parametrize("seeds", ["5", "5:5", "7:3", "a:b", ":3"])
def test_an_invalid_range_of_seeds_is_refused(
    seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sim", "swarm", "--seeds", seeds]) == 2

    assert "0:100" in capsys.readouterr().err


def _ignore(_total: SwarmReport) -> None:
    pass
