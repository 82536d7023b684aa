"""`geolog segment`: lists the segments of a stream."""

import click

from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="segment")
def command() -> None:
    """List the segments of a stream: each is one ledger."""


@command.command(
    "ls",
    epilog=examples(
        "geolog segment ls shop/orders",
        "geolog segment ls shop/orders --limit 10   # Only the last ten.",
        "geolog segment ls 'shop/clicks#2' -o jsonl",
    ),
)
@click.argument("name", metavar="STREAM[#P]", type=partition_or_stream)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="List only the last N segments of each partition.",
)
@done_by("geolog.cli.verbs.segment")
def list_(**_: object) -> None:
    """List the segments of a stream, oldest first; -o json adds the nodes of each."""
