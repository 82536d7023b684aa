"""Worlds made for one purpose have what they need, and are drawn often enough."""

import pytest

from sim.planted.hunt import options_of_hunt
from sim.world.chance import Draws
from sim.world.draws.base_options import BASE
from sim.world.draws.clock_draws import FAR, STORE_CLOCK
from sim.world.draws.drawing import draw_options, options_of_seed
from sim.world.draws.special_worlds import RARE, steady
from sim.world.endings import ENDINGS
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options


@pytest.fixture(scope="module")
def hunted() -> list[Options]:
    return [options_of_hunt(seed) for seed in range(200)]


def struck_by(kind: str, worlds: list[Options]) -> list[Options]:
    return [one for one in worlds if kind in dict(one.hazards.strikes_per_s)]


def test_slow_clients_load_nodes_with_little_room(hunted: list[Options]) -> None:
    worlds = struck_by("ambush-answers", hunted)

    assert len(worlds) > len(hunted) / 12
    assert all(one.knobs.is_room_tight for one in worlds)
    assert all(
        one.shape.quorum.ensemble_size == one.shape.quorum.write_quorum for one in worlds
    )


def test_entries_that_members_lack_are_mostly_acknowledged_before_all_have_them(
    hunted: list[Options],
) -> None:
    worlds = struck_by("ambush-lack", hunted)
    early = [
        one for one in worlds if one.shape.quorum.ack_quorum < one.shape.quorum.write_quorum
    ]

    assert len(worlds) > len(hunted) / 7
    assert len(early) > len(worlds) / 2


def test_in_steady_worlds_processes_end_and_lost_members_can_be_replaced() -> None:
    for seed in range(20):
        world = steady(BASE, Draws(seed))
        nodes_count = sum(count for _, count in world.shape.nodes_by_region)

        assert ENDINGS.issuperset(dict(world.hazards.strikes_per_s))
        assert world.shape.quorum.ensemble_size + 2 <= nodes_count
        assert world.knobs.member_away_s < world.hazards.chaos_s


def test_some_worlds_are_made_for_far_clocks_and_frequent_retention() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(300)]
    far = struck_by(FAR, drawn)
    first = [draw_options(Draws(seed), tuple(FAULTS)) for seed in range(300)]

    assert 10 < len(far) < 50
    assert all((one.stream.retention_s, one.stream.segment_age_s) == (3.0, 1.0) for one in far)
    assert not struck_by(FAR, first)


def test_the_stores_clock_is_far_off_only_where_host_clocks_are_right() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(300)]
    far = struck_by(STORE_CLOCK, drawn)
    first = [draw_options(Draws(seed), tuple(FAULTS)) for seed in range(300)]

    assert 6 < len(far) < 40
    assert all((one.stream.retention_s, one.stream.segment_age_s) == (3.0, 1.0) for one in far)
    assert not [kind for kind in ("clock-jump", "clock-skew", FAR) if struck_by(kind, far)]
    assert not struck_by(STORE_CLOCK, first)


def test_some_worlds_without_faults_are_made_for_the_exchange_of_a_region() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(300)]
    exchanged = [one for one in drawn if one.knobs.is_region_exchanged]

    assert 2 < len(exchanged) < 25
    for one in exchanged:
        assert not one.hazards.strikes_per_s
        assert one.stream.is_plain
        assert sum(count for _, count in one.shape.nodes_by_region) == 3


def test_rare_faults_are_faults() -> None:
    assert set(FAULTS) >= RARE
