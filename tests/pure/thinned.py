"""Exhaustive tests that the quick stage thins out, and seeds of which some are long."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

_EXAMPLES_WHOLE = 100
"""Examples of a property in the default profile; a profile with fewer is a quick one."""


def thinned(everything: Sequence[T], *, one_in: int) -> Sequence[T]:
    """Everything; with `--hypothesis-profile=quick`, one in `one_in`."""
    return everything if settings().max_examples >= _EXAMPLES_WHOLE else everything[::one_in]


def seeds(count: int, *, long_count: int) -> list[pytest.ParameterSet]:
    """Parameters 0, 1, … for a test of histories: `count` of them, and then the long ones."""
    short = [pytest.param(seed) for seed in range(count)]
    long = range(count, count + long_count)
    return short + [pytest.param(seed, marks=pytest.mark.long) for seed in long]
