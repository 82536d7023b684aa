"""Draw at random, only as much as needed: uniform or by weight, each item at most once."""

import bisect
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def shuffled(items: Sequence[_T], rng: random.Random) -> Iterator[_T]:
    """The items in random order; the cost grows with how many are taken."""
    moved: dict[int, int] = {}
    for left in range(len(items), 0, -1):
        pick = int(rng.random() * left)
        yield items[moved.get(pick, pick)]
        moved[pick] = moved.get(left - 1, left - 1)


def shuffled_by_weight(
    items: Sequence[_T], weights_summed: Sequence[float], rng: random.Random
) -> Iterator[_T]:
    """The items in random order; each next one is drawn by weight from those left.

    `weights_summed` are the running sums of their weights, all of which are above zero.
    """
    taken: set[int] = set()
    for _ in items:
        for _ in range(8):
            at = rng.random() * weights_summed[-1]
            pick = min(bisect.bisect_right(weights_summed, at), len(items) - 1)
            if pick not in taken:
                break
        else:
            break  # Those taken hold most of the weight: draw from the rest alone.
        taken.add(pick)
        yield items[pick]
    rest = [index for index in range(len(items)) if index not in taken]
    weights = [
        weights_summed[index] - (weights_summed[index - 1] if index else 0.0) for index in rest
    ]
    while rest:
        (pick,) = rng.choices(range(len(rest)), weights)
        weights.pop(pick)
        yield items[rest.pop(pick)]


def capped_weights(values: Sequence[int], multiple_max: float) -> list[float]:
    """Weights for free space: at most a multiple of the median, none of them zero.

    A node of unknown or no free space weighs as much as the least of the others: it is not left
    out. When no free space is known, all weigh the same.
    """
    known = [value for value in values if value > 0]
    if not known:
        return [1.0] * len(values)
    ranked = sorted(values)
    half = len(ranked) // 2
    median = ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
    cap = multiple_max * median if multiple_max * median > 0 else float(max(known))
    least = min(known)
    return [float(min(value if value > 0 else least, cap)) for value in values]


def running_sums(weights: Sequence[float]) -> tuple[float, ...]:
    """For each position, the sum of the weights up to and including it."""
    return tuple(itertools.accumulate(weights))
