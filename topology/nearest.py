"""Finds the known word that a mistyped one probably stands for."""

import difflib
from collections.abc import Iterable

_COMPARED_CHARACTERS_MAX = 200
"""Only the front of a longer word is compared: strangers send words of any length."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most similar to `word`; among equals, the first in the alphabet."""
    front = word[:_COMPARED_CHARACTERS_MAX]
    candidates = sorted(known)
    assert candidates, "no known words to compare with"
    return max(
        candidates, key=lambda other: difflib.SequenceMatcher(None, front, other).ratio()
    )
