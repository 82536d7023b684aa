"""The worked examples of placement, each run often and checked against its expectation."""

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from topology.evaluation import ScenarioAnswer, evaluate
from topology.json_values import Json

Example = dict[str, Json]
EXAMPLES: list[Example] = json.loads(
    Path(__file__).with_name("placement_examples.json").read_text(encoding="utf-8")
)
CHECKED_TRIALS_MAX = 50
"""Enough to meet each branch; the file asks for up to 200."""


def named(value: Json) -> list[str]:
    return cast("list[str]", value)


def domains(example: Example, level: str) -> dict[str, str]:
    """The region, or the whole rack, of each node."""
    nodes = cast("list[dict[str, str]]", example["nodes"])
    return {
        node["id"]: node["location"].split("/")[1] if level == "region" else node["location"]
        for node in nodes
    }


def write_sets(example: Example, ensemble: Sequence[str]) -> list[list[str]]:
    width = cast("dict[str, int]", example["args"])["write_quorum"]
    size = len(ensemble)
    return [[ensemble[(first + turn) % size] for turn in range(width)] for first in range(size)]


def holds_windows(example: Example, answer: ScenarioAnswer, expected: Json) -> bool:
    asked = cast("dict[str, Json]", expected)
    places = domains(example, str(asked["level"]))
    found = write_sets(example, named(answer["ensemble"]))
    return len(found) == asked["count"] and all(
        len({places[node] for node in window}) >= cast("int", asked["min_distinct"])
        for window in found
    )


def holds_region_cap(example: Example, answer: ScenarioAnswer, expected: Json) -> bool:
    places = domains(example, "region")
    return all(
        [places[node] for node in window].count(region) <= cast("int", expected)
        for window in write_sets(example, named(answer["ensemble"]))
        for region in set(places.values())
    )


def holds_ratios(example: Example, answer: ScenarioAnswer, expected: Json) -> bool:
    counts = cast("dict[str, int]", answer["counts"])
    return all(
        low < counts[first] / counts[second] < high
        for first, second, low, high in cast("list[tuple[str, str, float, float]]", expected)
    )


def zones_differ(example: Example, answer: ScenarioAnswer, expected: Json) -> bool:
    zones = [domains(example, "region")[node] for node in named(answer["ensemble"])]
    return sum(a != b for a, b in itertools.pairwise(zones)) >= cast("int", expected)


def holds_positions(example: Example, answer: ScenarioAnswer, expected: Json) -> bool:
    allowed = cast("list[list[str]]", expected)
    nodes = named(answer["ensemble"])
    return len(nodes) == len(set(nodes)) == len(allowed) and all(
        node in choice for node, choice in zip(nodes, allowed, strict=True)
    )


CHECKS: dict[str, Callable[[Example, ScenarioAnswer, Json], bool]] = {
    "size": lambda _, answer, value: len(set(named(answer["ensemble"]))) == value,
    "contains_all": lambda _, answer, value: (
        set(named(value)) <= set(named(answer["ensemble"]))
    ),
    "contains_none": lambda _, answer, value: (
        not (set(named(value)) & set(named(answer["ensemble"])))
    ),
    "result_set": lambda _, answer, value: set(named(answer["ensemble"])) == set(named(value)),
    "one_of": lambda _, answer, value: answer["node"] in named(value),
    "num_regions": lambda example, answer, value: (
        len({domains(example, "region")[node] for node in named(answer["ensemble"])}) == value
    ),
    "distinct_locations": lambda example, answer, value: (
        len({domains(example, "rack")[node] for node in named(answer["ensemble"])}) == value
    ),
    "windows": holds_windows,
    "write_set_region_cap": holds_region_cap,
    "count_ratio_open_interval": holds_ratios,
    "adjacent_zones_differ": zones_differ,
    "positions": holds_positions,
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["id"]))
def test_an_example_has_the_expected_answer(example: Example) -> None:
    trials = min(cast("int", example.get("trials", 1)), CHECKED_TRIALS_MAX)
    for seed in range(trials):
        answer = evaluate(example, 0, random.Random(seed))

        assert answer["id"] == example["id"]
        for name, value in cast("dict[str, Json]", example["expect"]).items():
            if name in CHECKS:
                assert CHECKS[name](example, answer, value), (name, answer)
            else:
                assert answer[name] == value, answer
