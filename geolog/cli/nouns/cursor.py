"""`geolog cursor`: lists, describes, moves and deletes the named positions of a stream."""

import click

from geolog.cli.arguments import partition_or_stream, stream_name
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="cursor")
def command() -> None:
    """List, describe, move and delete cursors: named positions that readers keep in a stream.

    "geolog read STREAM --cursor NAME" makes a cursor and resumes where it stands.
    """


@command.command(
    "ls",
    epilog=examples(
        "geolog cursor ls shop/orders",
        "geolog cursor ls shop/orders -o jsonl",
    ),
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@done_by("geolog.cli.verbs.cursor")
def list_(**_: object) -> None:
    """List the cursors of a stream, and how far each is behind its end."""


@command.command(
    epilog=examples(
        "geolog cursor describe shop/orders billing",
        "geolog cursor describe shop/orders billing -o json",
    )
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("cursor", metavar="CURSOR")
@done_by("geolog.cli.verbs.cursor")
def describe(**_: object) -> None:
    """Show a cursor: its readers, and position and lag in each partition."""


@command.command(
    epilog=examples(
        "geolog cursor seek shop/orders billing --to earliest",
        "geolog cursor seek shop/orders billing --to time:-1h",
        "geolog cursor seek 'shop/clicks#2' billing --to sequence:1000 --force",
    )
)
@click.argument("stream", metavar="STREAM[#P]", type=partition_or_stream)
@click.argument("cursor", metavar="CURSOR")
@click.option(
    "--to",
    required=True,
    metavar="POSITION",
    help="First position to read next: earliest, latest, last:N, a DLSN (e.g. 3-120-0),"
    " sequence:N[@EPOCH], time:RFC3339, time:-1h or txid:N.",
)
@click.option(
    "--force", is_flag=True, help="Also while it is read; its readers go on from there."
)
@done_by("geolog.cli.verbs.cursor")
def seek(**_: object) -> None:
    """Move a cursor in all partitions, or in one.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P.
    """


@command.command(
    epilog=examples(
        "geolog cursor delete shop/orders billing",
        "geolog cursor delete shop/orders billing --yes",
    )
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("cursor", metavar="CURSOR")
@click.option("--force", is_flag=True, help="Also while it is read; its readers fail.")
@done_by("geolog.cli.verbs.cursor")
def delete(**_: object) -> None:
    """Delete a cursor and its positions. This cannot be undone."""
