"""Exhaustive tests that the quick stage thins out."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

_EXAMPLES_WHOLE = 100
"""Examples of a property in the default profile; a profile with fewer is a quick one."""


def thinned(everything: Sequence[T], *, one_in: int) -> Sequence[T]:
    """Everything; with `--hypothesis-profile=quick`, one in `one_in`."""
    return everything if settings().max_examples >= _EXAMPLES_WHOLE else everything[::one_in]
