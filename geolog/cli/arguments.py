"""What several verbs take: a stream's name, and the question before harm."""

import re
import sys

import click

from geolog.cli.invocation import this_invocation
from topology.errors import InvalidArgumentError

_NAME = "[a-z0-9][a-z0-9._-]{0,127}"
_STREAM = re.compile(f"{_NAME}/{_NAME}(#0)?")


def stream_name(text: str) -> str:
    """Read `NAMESPACE/NAME`, or `NAMESPACE/NAME#0` for its only partition."""
    if not _STREAM.fullmatch(text):
        raise InvalidArgumentError(
            f"{text!r} is no stream's name: write NAMESPACE/NAME, each of 1 to 128 of "
            "a-z, 0-9, '.', '_', '-', beginning with a letter or digit"
        )
    return text.removesuffix("#0")


def confirm(question: str) -> None:
    """Ask before harm is done; without a terminal to ask on, `--yes` must have been given."""
    if this_invocation().is_confirmed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on")
    click.confirm(question, abort=True, err=True)
