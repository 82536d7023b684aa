"""Homes that are lost and fail over under faults; and the laws that judge it."""

import attrs
import pytest

from sim.histories.run import run_seed
from sim.world.chance import Draws
from sim.world.draws.base_options import BASE
from sim.world.draws.failover_draws import with_failovers
from sim.world.options import Options


def world_of(seed: int) -> Options:
    drawn = with_failovers(BASE, Draws(seed))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=14.0))


@pytest.mark.parametrize("seed", [13])
def test_what_a_failover_leaves_behind_is_kept_told_of_and_in_no_stream(seed: int) -> None:
    report = run_seed(seed, options=world_of(seed))

    assert report.violations == []
    assert {"failed-over", "left-behind"} <= set(report.sometimes)
    assert report.acknowledged > 0
