"""Arguments that several verbs share, and the confirmation before destructive ones.

What parses them is imported once there is one: help and completion have none.
"""

import sys

import click

from geolog.cli.invocation import this_invocation
from topology.errors import InvalidArgumentError


def stream_name(text: str) -> str:
    """Parse `NAMESPACE/NAME`, a whole stream."""
    from geolog.protocol.stream_state import parse_target

    name, partition = parse_target(text)
    if partition is not None:
        raise InvalidArgumentError(
            f"{text!r} names one partition; this command takes a whole stream, {str(name)!r}"
        )
    return text


def partition_or_stream(text: str) -> str:
    """Parse `NAMESPACE/NAME`, or `NAMESPACE/NAME#P` for one partition."""
    from geolog.protocol.stream_state import parse_target

    parse_target(text)
    return text


def readable(text: str) -> str:
    """Parse what can be read: a stream, one partition of it, or a pattern of streams."""
    from geolog.protocol.stream_pattern import StreamPattern, is_pattern

    if is_pattern(text):
        StreamPattern.parse(text)
        return text
    return partition_or_stream(text)


def confirm(question: str) -> None:
    """Ask before doing harm; without a terminal, insist on `--yes`."""
    if this_invocation().is_confirmed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Pass --yes to confirm: stdin is not a terminal")
    from geolog.cli.signals import ending_a_question

    with ending_a_question():
        click.confirm(question, abort=True, err=True)
