"""Each option of a world is drawn from a source of its own: a new draw moves no other."""

from random import Random

import pytest

from sim.world import chance as chance_module
from sim.world.chance import Draws
from sim.world.draws.drawing import options_of_seed
from sim.world.faults.all_faults import FAULTS


def test_a_draw_depends_on_the_seed_and_the_purpose_alone() -> None:
    numbers = range(1000)
    late = Draws(7)
    late.choice("something drawn before", numbers)

    assert late.choice("size", numbers) == Draws(7).choice("size", numbers)
    assert Draws(7).choice("size", numbers) != Draws(7).choice("length", numbers)
    assert Draws(7).choice("size", numbers) != Draws(8).choice("size", numbers)


def test_a_new_name_changes_only_the_samples_that_it_enters() -> None:
    names = [f"fault-{number}" for number in range(10)]
    entered = 0
    for seed in range(100):
        before = Draws(seed).sample("fault", names, 3)
        after = Draws(seed).sample("fault", [*names, "new"], 3)
        if "new" not in after:
            assert after == before
        entered += "new" in after

    assert 10 < entered < 50


def test_options_are_drawn_in_their_shares() -> None:
    drawn = [Draws(seed).one_of("kind", [(0.1, "a"), (0.3, "b")]) for seed in range(1000)]

    assert 70 < drawn.count("a") < 130
    assert 250 < drawn.count("b") < 350
    assert drawn.count(None) == 1000 - drawn.count("a") - drawn.count("b")


def test_a_new_fault_strikes_in_few_worlds_and_moves_nothing_else() -> None:
    moved = 0
    for seed in range(100):
        before = options_of_seed(seed, tuple(FAULTS))
        after = options_of_seed(seed, ("new-fault", *FAULTS))
        assert (after.shape, after.links) == (before.shape, before.links)
        assert (after.stream, after.placement) == (before.stream, before.placement)
        moved += after.hazards != before.hazards

    assert 0 < moved < 20


def test_no_purpose_serves_two_draws_of_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    purposes: list[str] = []
    good = chance_module.chance

    def note(seed: int, purpose: str) -> Random:
        purposes.append(purpose)
        return good(seed, purpose)

    monkeypatch.setattr(chance_module, "chance", note)
    for seed in range(50):
        purposes.clear()
        options_of_seed(seed, tuple(FAULTS))
        assert len(purposes) == len(set(purposes))
