"""The exhaustive model: the real cores keep the laws in all orders, and planted bugs do not."""

from random import Random

import pytest

from sim.model.__main__ import draw_shape
from sim.model.search import search_all, walk
from sim.model.shape import ModelShape
from sim.model.state import State
from sim.planted.bugs import planted
from topology.quorum import QuorumConfig

_SMALLEST = ModelShape(
    regions=("a", "b"),
    crashes_max=1,
    pushes_lac=False,
    quorum=QuorumConfig(ensemble_size=2, write_quorum=2, ack_quorum=2, min_regions=2),
)


def test_the_smallest_world_keeps_all_laws_in_all_its_states() -> None:
    searched = search_all(State.first(_SMALLEST))
    assert searched.broken == ""
    assert searched.is_closed
    assert searched.goals_count > 100


def test_a_search_that_is_stopped_at_a_depth_does_not_call_itself_closed() -> None:
    searched = search_all(State.first(_SMALLEST), depth_max=3)
    assert not searched.is_closed
    assert searched.depth == 3


def test_the_same_search_counts_the_same_states_twice() -> None:
    assert search_all(State.first(_SMALLEST), depth_max=8) == search_all(
        State.first(_SMALLEST), depth_max=8
    )


def test_equal_nodes_may_swap_names() -> None:
    assert sorted(ModelShape().symmetries()) == [(0, 1, 2), (1, 0, 2)]


def test_nodes_of_a_striped_ensemble_may_not_swap_names() -> None:
    quorum = QuorumConfig(ensemble_size=3, write_quorum=2, ack_quorum=2)
    assert len(ModelShape(quorum=quorum).symmetries()) == 1


def test_a_state_and_its_mirror_image_are_one() -> None:
    shape = ModelShape()
    first = State.first(shape)
    appended = dict(first.steps())["owner appends"]()
    steps = {words: make for words, make in appended.steps() if words.startswith("add")}
    digests = [make().digest() for make in steps.values()]
    assert len(steps) == 3
    assert len(set(digests)) == 2


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("one-absent-too-few", "4/5"),
        ("timeout-as-absent", "4/5"),
        ("fence-in-memory", "7"),
        ("fence-before-sync", "7"),
        ("recovery-read-does-not-fence", "6"),
    ],
)
def test_the_model_finds_a_planted_bug(name: str, law: str) -> None:
    shape = ModelShape(
        crashes_max=0, has_timeouts=name == "timeout-as-absent", pushes_lac=False
    )
    with planted(name):
        searched = search_all(State.first(shape), depth_max=16)
    assert searched.broken.startswith(f"{law}:")
    assert len(searched.way) == searched.depth


@pytest.mark.parametrize("seed", range(20))
def test_random_walks_with_more_nodes_keep_all_laws(seed: int) -> None:
    walked = walk(State.first(draw_shape(Random(f"{seed}/shape"))), seed, steps_max=400)
    assert walked.broken == "", walked.way
