"""The draws of placement: all settings of a new stream, if the world allows them."""

import pytest

from sim.world.chance import Draws
from sim.world.draws.drawing import draw_options
from sim.world.endings import ENDINGS
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options
from topology.quorum import Durability
from topology.stream_policy import OURS


@pytest.fixture(scope="module")
def drawn() -> list[Options]:
    return [draw_options(Draws(seed), tuple(FAULTS)) for seed in range(250)]


def test_seeds_draw_every_policy_and_durability(drawn: list[Options]) -> None:
    assert {one.placement.policy for one in drawn} == set(OURS)
    assert {one.shape.quorum.durability for one in drawn} == set(Durability)


def test_seeds_draw_what_small_worlds_can_survive(drawn: list[Options]) -> None:
    asked = {one.placement.survive for one in drawn}
    assert asked >= {None, "1 node", "1 rack", "1 region"}


def test_seeds_draw_operators_who_switch_regions_and_repair_placement(
    drawn: list[Options],
) -> None:
    placement = [one.placement for one in drawn]
    assert any(one.switch_rest_s_max for one in placement)
    assert any(one.repair_rest_s_max for one in placement)


def test_seeds_draw_worlds_with_spare_nodes_whose_faults_only_end_processes(
    drawn: list[Options],
) -> None:
    steady = [
        one
        for one in drawn
        if one.hazards.strikes_per_s
        and ENDINGS.issuperset(kind for kind, _ in one.hazards.strikes_per_s)
    ]
    assert len(steady) > len(drawn) / 10
    for one in steady:
        assert sum(count for _, count in one.shape.nodes_by_region) >= 2
