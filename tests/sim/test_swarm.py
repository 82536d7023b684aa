"""Many seeds together: what is counted, how it ends, what the command says."""

import json

import pytest

from geolog.cli.main import run
from sim.planted.bugs import planted
from sim.swarm import SwarmReport, run_swarm
from sim.world.faults import FAULTS
from sim.world.run import run_seed


def test_a_swarm_adds_up_what_its_seeds_covered() -> None:
    told: list[int] = []

    total = run_swarm(range(3), jobs=1, on_seed=lambda so_far: told.append(so_far.seeds_count))

    alone = [run_seed(seed) for seed in range(3)]
    assert told == [1, 2, 3]
    assert total.events == sum(each.events for each in alone)
    assert sum(total.faults.values()) == sum(sum(each.faults.values()) for each in alone)
    assert total.sometimes["phase"] == 3
    assert set(total.faults_never_struck) | set(total.faults) == set(FAULTS)


def test_two_processes_find_what_one_does() -> None:
    totals = [run_swarm(range(4), jobs=jobs, on_seed=_ignore) for jobs in (1, 2)]

    # They may come in another order, which moves the last digit of a sum.
    for total in totals:
        total.simulated_s = round(total.simulated_s, 3)
    assert totals[0] == totals[1]


def test_a_swarm_whose_time_is_over_begins_no_further_seed() -> None:
    begun: list[None] = []

    def is_time_over() -> bool:
        begun.append(None)
        return len(begun) > 2

    total = run_swarm(range(9), jobs=1, on_seed=_ignore, is_time_over=is_time_over)

    assert total.seeds_count == 2


def test_the_command_ends_well_with_what_was_covered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["-o", "json", "sim", "swarm", "--seeds", "3:5"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == 2
    assert document["violations"] == []


def test_the_command_ends_with_10_and_the_command_that_shows_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with planted("fence-in-memory"):
        assert run(["sim", "swarm", "--seeds", "1:2"]) == 10

    assert "geolog sim replay --seed" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["5", "5:5", "7:3", "a:b", ":3"])
def test_what_is_no_range_of_seeds_is_refused(
    seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sim", "swarm", "--seeds", seeds]) == 2

    assert "0:100" in capsys.readouterr().err


def _ignore(_total: SwarmReport) -> None:
    pass
