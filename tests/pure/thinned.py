"""Tests that go through all there is, and in the quick stage through a part of it."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

_EXAMPLES_WHOLE = 100
"""Of the default profile: whoever wants fewer examples of each property is in a hurry."""


def thinned(everything: Sequence[T], *, one_in: int) -> Sequence[T]:
    """All of these; with `--hypothesis-profile=quick` one in so many of them."""
    return everything if settings().max_examples >= _EXAMPLES_WHOLE else everything[::one_in]
