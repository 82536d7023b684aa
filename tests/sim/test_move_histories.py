"""Homes that move by plan under faults; and the laws that judge it."""

import attrs

from sim.histories.run import run_seed
from sim.world.chance import Draws
from sim.world.draws.base_options import BASE
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.move_draws import with_moves
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options


def world_of(seed: int) -> Options:
    drawn = with_moves(BASE, Draws(seed))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, chaos_s=8.0))


def test_a_home_moves_while_movers_owners_and_coordinators_die() -> None:
    report = run_seed(5, options=world_of(5))

    assert report.violations == []
    assert "home-moved" in report.sometimes
    assert report.acknowledged > 0


def test_a_stream_that_is_sealed_as_its_home_moves_is_sealed_at_the_new_home() -> None:
    report = run_seed(107, options=with_moves(BASE, Draws(107)))

    assert report.violations == []
    assert {"home-moved", "sealed"} <= set(report.sometimes)


def test_some_seeds_draw_moves() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(200)]
    relayed = [one for one in drawn if one.shape.relays_per_region]
    moved = [one for one in relayed if one.knobs.moves_rest_s_max is not None]

    assert 2 < len(moved) < len(relayed)
