"""Finds the known word that a mistyped one probably stands for."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most similar to `word`; among equals, the first in the alphabet."""
    candidates = sorted(known)
    assert candidates, "no known words to compare with"
    return max(candidates, key=lambda other: difflib.SequenceMatcher(None, word, other).ratio())
