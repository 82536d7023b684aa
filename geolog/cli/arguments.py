"""What several verbs take: a stream's name, and the question before harm."""

import sys

import click

from geolog.cli.invocation import this_invocation
from geolog.protocol.stream_state import parse_target
from topology.errors import InvalidArgumentError


def stream_name(text: str) -> str:
    """Read `NAMESPACE/NAME`: a stream, whole."""
    name, partition = parse_target(text)
    if partition is not None:
        raise InvalidArgumentError(
            f"{text!r} is one partition: this is done to a whole stream, {str(name)!r}"
        )
    return text


def partition_or_stream(text: str) -> str:
    """Read `NAMESPACE/NAME`, or `NAMESPACE/NAME#P` for one partition of it."""
    parse_target(text)
    return text


def confirm(question: str) -> None:
    """Ask before harm is done; without a terminal to ask on, `--yes` must have been given."""
    if this_invocation().is_confirmed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on")
    click.confirm(question, abort=True, err=True)
