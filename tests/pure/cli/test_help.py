"""Every help page describes its options, and shows examples that the command accepts."""

import inspect
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from geolog.cli.invocation import Invocation
from geolog.cli.late_import import LATE
from geolog.cli.main import root

_SHELL = re.compile(r" (?:[|<]|>>?) |   # ")
"""End of a call: shell syntax or a comment follows."""


def verbs(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command, leaving out nouns that do nothing by themselves."""
    if not isinstance(command, click.Group):
        yield context
        return
    if command.invoke_without_command:
        yield context
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from verbs(child, click.Context(child, parent=context, info_name=name))


def all_verbs() -> list[click.Context]:
    return list(verbs(root, click.Context(root, info_name="geolog", obj=Invocation())))


def example_calls(context: click.Context) -> list[list[str]]:
    """Return the words of each example that calls geolog."""
    text = (context.command.epilog or "").replace("\\\n", "")
    lines = [line.strip() for line in text.splitlines()]
    calls = [line[line.index("geolog ") :] for line in lines if "geolog " in line]
    return [shlex.split(_SHELL.split(line)[0]) for line in calls]


def parse(words: list[str]) -> click.Context:
    """Parse a call as the command does, without running it."""
    command: click.Command = root
    context, rest = click.Context(root, obj=Invocation()), words[1:]
    while (
        isinstance(command, click.Group) and rest and rest[0] in command.list_commands(context)
    ):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None
        context, command = click.Context(found, parent=context, info_name=name), found
    assert context.parent is not None
    return command.make_context(context.info_name, rest, parent=context.parent)


@pytest.mark.parametrize("context", all_verbs(), ids=lambda one: one.command_path)
def test_a_command_shows_examples_that_it_accepts(context: click.Context) -> None:
    calls = example_calls(context)

    assert calls, "no examples"
    for words in calls:
        assert parse(words).command is context.command


@pytest.mark.parametrize("context", all_verbs(), ids=lambda one: one.command_path)
def test_every_option_is_described_in_a_sentence(context: click.Context) -> None:
    options = [
        one for one in context.command.get_params(context) if isinstance(one, click.Option)
    ]
    records = [record for one in options if (record := one.get_help_record(context))]

    assert [names for names, text in records if not re.search(r"(?<!e\.g)[.\]]$", text)] == []


@pytest.mark.parametrize("context", all_verbs(), ids=lambda one: one.command_path)
def test_a_verb_that_is_imported_late_takes_the_options_of_its_help(
    context: click.Context,
) -> None:
    callback = context.command.callback
    assert callback is not None
    late = inspect.unwrap(callback, stop=lambda one: one in LATE)
    if late not in LATE:
        return
    taken = inspect.signature(LATE[late].found()).parameters.values()
    words = {one.name for one in taken if one.kind is one.KEYWORD_ONLY}
    words |= {one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD}
    given = {one.name for one in context.command.params if one.expose_value}
    takes_others = any(one.kind is one.VAR_KEYWORD for one in taken)

    assert words - given <= {"context", "ctx"}
    assert takes_others or given <= words


@pytest.mark.parametrize("context", all_verbs(), ids=lambda one: one.command_path)
def test_bounds_of_numbers_are_given_in_words(context: click.Context) -> None:
    assert not re.search(r"\bx>|<=x", context.get_help())
