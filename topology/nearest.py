"""Finds the known word that a mistyped one probably stands for."""

import difflib
from collections.abc import Iterable

LIKENESS_MIN = 0.6
"""Words that are less alike are no typing errors: a suggestion would mislead."""

_COMPARED_CHARACTERS_MAX = 200
"""Only the front of a longer word is compared: strangers send words of any length."""

_LISTED_MAX = 12
"""Known words listed where none is alike; of more, a list would hide the error."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, the first in the alphabet among equals.

    None if none is like it.
    """
    front = word[:_COMPARED_CHARACTERS_MAX].lower()
    likeness, found = max(
        (
            (difflib.SequenceMatcher(None, front, other.lower()).ratio(), other)
            for other in sorted(known)
        ),
        default=(0.0, None),
        key=lambda one: one[0],
    )
    return found if likeness >= LIKENESS_MIN else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown word, from the semicolon on.

    It names the nearest known word, else all of them if they are few; else it is empty.
    """
    choices = sorted(known)
    found = nearest(word, choices)
    if found is not None:
        return f"; did you mean {found!r}?"
    return f"; use {_either(choices)}" if 0 < len(choices) <= _LISTED_MAX else ""


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
