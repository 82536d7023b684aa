"""Patterns of stream names against shell wildcards; what is said of those of other tools."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.stream_pattern import StreamPattern, is_pattern
from geolog.protocol.stream_state import StreamName
from topology.errors import InvalidArgumentError

PARTS = st.text("ab-.", min_size=1, max_size=6).filter(lambda one: one[0] not in "-.")
PATTERN_PARTS = st.text("ab*", min_size=1, max_size=6).filter(lambda one: "**" not in one)


@given(PATTERN_PARTS, PATTERN_PARTS, PARTS, PARTS)
def test_a_wildcard_stands_for_any_characters_of_its_part(
    namespaces: str, names: str, namespace: str, name: str
) -> None:
    pattern = StreamPattern.parse(f"{namespaces}/{names}")
    expected = fnmatchcase(namespace, namespaces) and fnmatchcase(name, names)
    assert pattern.matches(StreamName(namespace, name)) is expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("shop/>", "shop/*"),  # NATS
        ("shop.*", "shop/*"),
        ("shop/.*", "shop/*"),  # Kafka and Pulsar
        ("^shop/ord.*$", "shop/ord*"),
        ("shop/**", "shop/*"),
        ("Shop/*", "shop/*"),
        ("shop*", "shop*/*"),
    ],
)
def test_patterns_of_other_tools_are_refused_with_ours(text: str, meant: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f"did you mean {meant!r}?")):
        StreamPattern.parse(text)
    StreamPattern.parse(meant)


@pytest.mark.parametrize("text", ["*", "a/b/*", "/*", "*/", "-a/*", "a/b[*", "*" * 300, "ä/*"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not NAMESPACE/NAME"):
        StreamPattern.parse(text)


def test_a_pattern_names_no_partition() -> None:
    with pytest.raises(InvalidArgumentError, match=r"use 'shop/\*'"):
        StreamPattern.parse("shop/*#2")


def test_only_what_cannot_be_a_name_is_taken_for_a_pattern() -> None:
    assert [is_pattern(one) for one in ("shop/orders", "shop/*", "*/a", "shop/>")] == [
        False,
        True,
        True,
        True,
    ]


def test_a_pattern_of_many_wildcards_is_compared_in_one_pass() -> None:
    # Each place of each wildcard, in all combinations, would take years.
    pattern = StreamPattern.parse("shop/" + "*a" * 60 + "*b")

    assert not pattern.matches(StreamName.parse("shop/" + "a" * 128))
    assert pattern.matches(StreamName.parse("shop/" + "a" * 120 + "b"))
