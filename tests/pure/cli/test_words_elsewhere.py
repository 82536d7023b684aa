"""Words of other systems lead to geolog's commands, and only to commands that it has."""

import click
import pytest

from geolog.cli import words_elsewhere
from geolog.cli.invocation import Invocation
from geolog.cli.main import NOUNS, root
from geolog.cli.words_elsewhere import meant_elsewhere


def verbs_of(noun: str) -> list[str]:
    command = root.get_command(click.Context(root, obj=Invocation()), noun)
    return list(command.commands) if isinstance(command, click.Group) else []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("topic", "stream"),
        ("Produce", "append"),
        ("publish", "append"),
        ("consume", "read"),
        ("subscribe", "read --follow"),
        ("list", "stream ls"),
        ("rm", "stream delete"),
        ("describe", "stream describe"),
        ("offset", "cursor"),
        ("frobnicate", None),
    ],
)
def test_a_word_leads_to_a_noun(word: str, meant: str | None) -> None:
    assert meant_elsewhere(word, NOUNS) == meant


@pytest.mark.parametrize(
    ("word", "meant"), [("rm", "delete"), ("list", "ls"), ("alter", "update")]
)
def test_a_word_leads_to_a_verb(word: str, meant: str) -> None:
    assert meant_elsewhere(word, verbs_of("stream")) == meant


@pytest.mark.parametrize("meant", sorted({*words_elsewhere._NOUNS.values()}))  # noqa: SLF001 - all.
def test_every_command_that_is_meant_exists(meant: str) -> None:
    noun, *rest = meant.split()
    assert noun in NOUNS
    for verb in rest:
        assert verb.startswith("--") or verb in verbs_of(noun)


@pytest.mark.parametrize("words", [["stream", "create"], ["read"], ["demo"], ["cluster"]])
def test_help_of_a_command_is_that_of_its_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ([*words, "--help"], ["help", *words]):
        with (
            pytest.raises(click.exceptions.Exit),
            root.make_context("geolog", line, obj=Invocation()) as context,
        ):
            root.invoke(context)
    asked = capsys.readouterr().out

    half = len(asked) // 2
    assert asked[:half] == asked[half:]
    assert asked.startswith(f"Usage: geolog {words[0]}")
