"""`geolog segment`: what a stream consists of."""

import click

from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import show
from geolog.cli.session import ask

# What fits on 80 columns; JSON has the rest.
_COLUMNS = (
    "partition",
    "segment",
    "ledger",
    "state",
    "first_sequence",
    "last_sequence",
    "size_bytes",
    "adherence",
)


@click.group(cls=Noun, name="segment")
def command() -> None:
    """What a stream consists of: one ledger after another."""


@command.command("ls")
@click.argument("name", metavar="STREAM", type=partition_or_stream)
def list_(name: str) -> None:
    """List the stream's segments, oldest first; with -o json also where each one lies."""
    segments = ask(lambda log: log.list_segments(name))
    show(segments, this_invocation().config.output, _COLUMNS)
