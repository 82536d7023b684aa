"""Exhaustive tests that the quick stage thins out, or of which `make test` runs a sample."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

_EXAMPLES_WHOLE = 100
"""Examples of a property in the default profile; a profile with fewer is a quick one."""


def thinned(everything: Sequence[T], *, one_in: int) -> Sequence[T]:
    """Everything; with `--hypothesis-profile=quick`, one in `one_in`."""
    return everything if settings().max_examples >= _EXAMPLES_WHOLE else everything[::one_in]


def sampled(everything: Iterable[object], *, one_in: int) -> list[pytest.ParameterSet]:
    """Parameters of a test; all but one in `one_in` of them are long."""
    return [
        pytest.param(one, marks=[pytest.mark.long] if number % one_in else [])
        for number, one in enumerate(everything)
    ]
