"""Man pages of the commands, in the `man` macros of roff, made from their help."""

import re
from collections.abc import Iterator

import click

from geolog.cli.invocation import option_rows


def man_pages(root: click.Context, *, version: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of the page of each command, nouns included."""
    for context in _commands(root):
        name = context.command_path.replace(" ", "-")
        yield f"{name}.1", _page(context, name, version)


def _commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(click.Context(child, parent=context, info_name=name))


def _page(context: click.Context, name: str, version: str) -> str:
    command = context.command
    paragraphs = _paragraphs(command.help or "")
    summary = command.get_short_help_str(1000).rstrip(".")
    parts = [
        f'.TH "{name.upper()}" "1" "" "geolog {_escaped(version)}" "geolog"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary[:1].lower() + summary[1:])}",
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_separated(paragraphs),
    ]
    options = option_rows(command.get_params(context), context)
    parts += [".SH OPTIONS", *_tagged(options)]
    if isinstance(command, click.Group):
        parts += [".SH COMMANDS", *_tagged(_verbs(command, context))]
    if command.epilog:
        parts += [".SH EXAMPLES", *_separated(_paragraphs(command.epilog))]
    if context.parent is not None:
        above = context.parent.command_path.replace(" ", "-")
        parts += [".SH SEE ALSO", f".BR {_escaped(above)} (1)"]
    return "\n".join(parts) + "\n"


def _verbs(command: click.Group, context: click.Context) -> list[tuple[str, str]]:
    found = (
        (name, command.get_command(context, name)) for name in command.list_commands(context)
    )
    return [(name, verb.get_short_help_str(1000)) for name, verb in found if verb is not None]


def _paragraphs(text: str) -> list[str]:
    """Split a help text into paragraphs of roff; those that click leaves alone keep lines."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            shown = [_escaped(line) for line in lines[1:] if line != "Examples:"]
            found.append("\n".join([".nf", *shown, ".fi"]))
        else:
            found.append(_escaped(" ".join(lines)))
    return found


def _separated(paragraphs: list[str]) -> list[str]:
    return [part for paragraph in paragraphs for part in (".PP", paragraph)]


def _tagged(rows: list[tuple[str, str]]) -> list[str]:
    return [
        part
        for tag, text in rows
        for part in (".TP", rf"\fB{_escaped(tag)}\fR", _escaped(text))
    ]


def _escaped(text: str) -> str:
    """Text as roff prints it verbatim: no line begins with a control character."""
    plain = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return rf"\&{plain}" if plain.startswith(".") else plain
