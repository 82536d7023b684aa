"""Names the known word that a mistyped one probably meant."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like `word`; of equals, the first in alphabet."""
    candidates = sorted(known)
    assert candidates, "there is nothing to compare with"
    return max(candidates, key=lambda other: difflib.SequenceMatcher(None, word, other).ratio())
