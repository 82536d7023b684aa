"""Random draws: every item once, and first as often as its weight says."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.draws import capped_weights, running_sums, shuffled, shuffled_by_weight


@given(st.integers(0, 30), st.integers(0, 99))
def test_a_shuffle_has_every_item_once(size: int, seed: int) -> None:
    assert sorted(shuffled(range(size), random.Random(seed))) == list(range(size))


@given(st.lists(st.integers(1, 10_000), max_size=12), st.integers(0, 99))
def test_a_weighted_shuffle_has_every_item_once_even_with_one_giant(
    weights: list[int], seed: int
) -> None:
    sums = running_sums([*map(float, weights), 1e9])
    items = range(len(weights) + 1)

    assert sorted(shuffled_by_weight(items, sums, random.Random(seed))) == list(items)


def test_the_first_and_second_items_follow_the_weights() -> None:
    rng = random.Random(1)
    sums = running_sums([6.0, 3.0, 1.0])
    drawn = Counter(tuple(shuffled_by_weight("abc", sums, rng))[:2] for _ in range(20_000))

    assert drawn["a", "b"] / 20_000 == pytest.approx(0.6 * 3 / 4, abs=0.02)
    assert drawn["b", "a"] / 20_000 == pytest.approx(0.3 * 6 / 7, abs=0.02)
    assert drawn["c", "a"] / 20_000 == pytest.approx(0.1 * 6 / 9, abs=0.02)


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        ([100, 200, 900], [100, 200, 600]),
        ([0, 100, 300], [100, 100, 300]),
        ([0, 0], [1, 1]),
        ([100, 200, 200, 2_000], [100, 200, 200, 600]),
        ([0, 0, 500], [500, 500, 500]),
    ],
)
def test_a_weight_is_at_most_three_medians_and_never_zero(
    values: list[int], weights: list[float]
) -> None:
    assert capped_weights(values, 3.0) == weights
