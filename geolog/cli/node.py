"""`geolog node`: the storage nodes."""

import click

from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import show
from geolog.cli.session import ask

_COLUMNS = ("node_id", "state", "address", "location")


@click.group(cls=Noun, name="node")
def command() -> None:
    """The storage nodes."""


@command.command("ls")
def list_() -> None:
    """List all nodes that the cluster knows, also those that are down.

    With -o json also the instance that each one's disk makes it.
    """
    show(ask(lambda log: log.list_nodes()), this_invocation().config.output, _COLUMNS)
