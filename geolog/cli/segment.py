"""`geolog segment`: what a stream consists of."""

import click

from geolog.cli.arguments import stream_name
from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import show
from geolog.cli.session import ask


@click.group(cls=Noun, name="segment")
def command() -> None:
    """What a stream consists of: one ledger after another."""


@command.command("ls")
@click.argument("name", metavar="STREAM", type=stream_name)
def list_(name: str) -> None:
    """List the stream's segments, oldest first."""
    show(ask(lambda log: log.list_segments(name)), this_invocation().config.output)
