"""A suggestion is made where a word is probably mistyped, and not otherwise."""

import pytest

from topology.nearest import nearest, suggestion

KNOWN = ("append", "demo", "read", "stream")


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("strem", "stream"),
        ("READ", "read"),
        ("help", None),
        ("", None),
        ("x" * 10_000_000, None),
        ("appendix" + "x" * 10_000_000, None),
    ],
    ids=["mistyped", "capitals", "another word", "empty", "long", "long and alike in front"],
)
def test_a_word_is_nearest_if_it_is_alike(word: str, found: str | None) -> None:
    assert nearest(word, KNOWN) == found


def test_nothing_is_nearest_among_nothing() -> None:
    assert nearest("read", ()) is None
    assert suggestion("read", ()) == ""


def test_the_first_in_the_alphabet_wins_among_equals() -> None:
    assert nearest("a-9", ["a-2", "a-1", "a-3"]) == "a-1"


def test_a_suggestion_names_the_nearest_or_all_of_a_few() -> None:
    assert suggestion("raed", KNOWN) == "; did you mean 'read'?"
    assert suggestion("mars", ["a"]) == "; use a"
    assert suggestion("mars", ["b", "a", "c"]) == "; use a, b or c"
    assert suggestion("mars", [f"region-{number}" for number in range(13)]) == ""
