"""Owners that hand their partitions over to each other, while sessions append through them."""

import attrs

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.hand_over_draws import HAND_OVER, with_hand_overs
from sim.world.faults.all_faults import FAULTS

_WORLD = with_hand_overs(BASE)
_SHORT = attrs.evolve(_WORLD, hazards=attrs.evolve(_WORLD.hazards, chaos_s=4.0))

_NEEDED = {"handed-over", "session-succeeded", "unmet-refused"}


def test_partitions_change_hands_while_owners_die_and_sessions_append() -> None:
    report = run_seed(1, options=_WORLD)

    assert report.violations == []
    assert report.acknowledged > 0
    assert report.faults[HAND_OVER] > 0
    assert _NEEDED.issubset(report.sometimes)


def test_a_history_has_the_same_trace_twice() -> None:
    first, second = (run_seed(1, options=_SHORT) for _ in range(2))

    assert first.trace_hash == second.trace_hash


def test_some_seeds_draw_such_a_world() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(300)]
    handing = [one for one in drawn if one.stream.hands_over]

    assert 1 < len(handing) < 20
    assert all(dict(one.hazards.strikes_per_s)[HAND_OVER] > 0 for one in handing)
