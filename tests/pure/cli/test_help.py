"""Every command has examples below its help, and they are calls of it that it takes."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from geolog.cli.invocation import Invocation
from geolog.cli.main import root

_SHELL = re.compile(r" (?:[|<]|>>?) |   # ")
"""Where a call ends, and the shell or a remark has the word."""


def verbs(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """A context for each command that is not a noun alone."""
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
    """The words of each example that is a call of geolog."""
    text = (context.command.epilog or "").replace("\\\n", "")
    lines = [line.strip() for line in text.splitlines()]
    calls = [line[line.index("geolog ") :] for line in lines if "geolog " in line]
    return [shlex.split(_SHELL.split(line)[0]) for line in calls]


def parse(words: list[str]) -> click.Context:
    """Parse a call as the command does, without doing anything."""
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
def test_a_command_shows_examples_that_it_takes(context: click.Context) -> None:
    calls = example_calls(context)

    assert calls, "it has no examples"
    for words in calls:
        assert parse(words).command is context.command
