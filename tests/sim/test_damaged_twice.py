"""Worlds with unreadable sectors, or with a file that is damaged again after it was settled."""

from sim.histories.run import run_seed
from sim.planted.hunt import options_of_hunt
from sim.world.draws.disk_draws import with_damage_twice
from sim.world.draws.drawing import options_of_seed
from sim.world.faults.all_faults import FAULTS


def test_some_worlds_are_damaged_twice_and_some_have_unreadable_sectors() -> None:
    drawn = [options_of_seed(seed, tuple(FAULTS)) for seed in range(400)]
    twice = [one for one in drawn if one.knobs.is_damaged_twice]
    unreadable = [
        one for one in drawn if "unreadable-sector" in dict(one.hazards.strikes_per_s)
    ]

    assert len(drawn) / 40 < len(twice) < len(drawn) / 10
    assert len(drawn) / 60 < len(unreadable) < len(drawn) / 10
    assert not any(one.knobs.is_upkeep_hasty for one in twice)


def test_damaging_a_settled_file_again_breaks_no_law() -> None:
    happened = 0
    for seed in range(30):
        report = run_seed(seed, options=with_damage_twice(options_of_hunt(seed)))
        assert report.violations == []
        happened += "damaged-twice" in report.sometimes
        if happened == 2:
            return
    raise AssertionError("nothing was damaged twice")
