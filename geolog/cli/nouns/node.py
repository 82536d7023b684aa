"""`geolog node`: lists, describes, checks and replaces storage nodes."""

import click

from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes_per_second


@click.group(cls=Noun, name="node")
def command() -> None:
    """List, describe, check and replace storage nodes."""


@command.command(
    "ls",
    epilog=examples(
        "geolog node ls",
        "geolog node ls -o jsonl",
    ),
)
@done_by("geolog.cli.verbs.node")
def list_(**_: object) -> None:
    """List all storage nodes of the cluster, including those that are down.

    -o json adds the instance id of each node's disk, and those of its past disks that still
    have copies to be moved (geolog node replace).
    """


@command.command(epilog=examples("geolog node describe eu-west-storage-1"))
@click.argument("node_id", metavar="ID")
@done_by("geolog.cli.verbs.node")
def describe(**_: object) -> None:
    """Show a node: its record, how many fragments it is in, and the status it reports."""


@command.command(epilog=examples("geolog node preflight eu-west-storage-1 eu-west-storage-2"))
@click.argument("node_ids", metavar="ID…", nargs=-1, required=True)
@done_by("geolog.cli.verbs.node")
def preflight(**_: object) -> None:
    """Report what restarting or losing these nodes together would put at risk.

    Exits with 10 if anything would be at risk.
    """


@command.command(
    epilog=examples(
        "geolog node replace eu-west-storage-1",
        "geolog node replace eu-west-storage-1 --with eu-west-storage-4 --rate 50MB/s",
    )
)
@click.argument("node_id", metavar="OLD")
@click.option(
    "--with",
    "successor_id",
    metavar="ID",
    help="Node that takes the place of OLD; it must be up. [default: OLD, restarted on an empty"
    " disk]",
)
@click.option(
    "--rate",
    type=parse_bytes_per_second,
    metavar="RATE",
    help="Copy no faster than this, e.g. 50MB/s. [default: no limit]",
)
@click.option(
    "--keep-waiting",
    "is_waiting",
    is_flag=True,
    help="Also wait, without a time limit, until open ledgers have dropped OLD.",
)
@done_by("geolog.cli.verbs.node")
def replace(**_: object) -> None:
    """Replace a node whose disk is lost: copy its data from other members to a successor.

    OLD must be down. Its disk is given up for good. The successor is the same node restarted
    on an empty disk, or another node (--with). If interrupted, run the same command again.

    Exits with 5 if all remaining problems may resolve by themselves, with 10 if any will not.
    """
