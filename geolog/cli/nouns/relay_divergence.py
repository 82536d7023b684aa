"""`geolog relay divergence`: the records that failovers left behind."""

from pathlib import Path

import click

from geolog.cli.arguments import stream_name
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="divergence")
def command() -> None:
    """List, read, export and discard the records that a failover left behind.

    When a lost home comes back with records that the new home never got, its region keeps them
    aside, and "geolog cluster health" counts them until you discard them. A divergence is named
    REGION~EPOCH#PARTITION: the region that keeps it, the home epoch of the failover that left
    it out, and the partition.
    """


@command.command(
    "ls",
    epilog=examples(
        "geolog relay divergence ls shop/carts",
        "geolog relay divergence ls shop/carts -o json",
    ),
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@done_by("geolog.cli.verbs.relay_divergence")
def list_(**_: object) -> None:
    """List the divergences of a stream."""


@command.command(
    "show",
    epilog=examples(
        "geolog relay divergence show shop/carts us-east~2#0",
        "geolog relay divergence show shop/carts us-east~2#0 --count 10",
    ),
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("divergence", metavar="DIVERGENCE")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Only the first N records.")
@done_by("geolog.cli.verbs.relay_divergence")
def show_(**_: object) -> None:
    """Print the records of a divergence on stdout, as JSON lines."""


@command.command(
    epilog=examples(
        "geolog relay divergence export shop/carts us-east~2#0 --file carts.jsonl",
        "geolog relay divergence export shop/carts us-east~2#0 --into shop/carts",
    )
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("divergence", metavar="DIVERGENCE")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write JSON lines to this new file.",
)
@click.option(
    "--into",
    type=stream_name,
    metavar="STREAM",
    help="Append the records to this stream, the same one or another.",
)
@done_by("geolog.cli.verbs.relay_divergence")
def export(**_: object) -> None:
    """Copy the records of a divergence to a file, or into a stream.

    Into a stream they go under a writer id of their own, so repeating the export adds nothing
    twice; ids, seqs and times of their writers go into headers that begin with "diverged-". The
    divergence stays until it is discarded.
    """


@command.command(
    epilog=examples("geolog relay divergence discard shop/carts us-east~2#0 --yes")
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("divergence", metavar="DIVERGENCE")
@done_by("geolog.cli.verbs.relay_divergence")
def discard(**_: object) -> None:
    """Delete a divergence and its records permanently."""
