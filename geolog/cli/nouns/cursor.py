"""`geolog cursor`: lists, describes, moves and deletes the named positions of a stream."""

import time

import click

from geolog.cli.arguments import confirm, partition_or_stream, stream_name
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.client.cursors.cursors import CursorDescription
from geolog.client.reading.bounds import parse_bound


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
def list_(stream: str) -> None:
    """List the cursors of a stream, and how far each is behind its end."""
    found = ask(lambda log: log.list_cursors(stream), minds_region=True)
    output = this_invocation().config.output
    if output == "table":
        show(
            [_row(one) for one in found],
            output,
            empty=f"no cursors; make one with: geolog read {stream} --cursor NAME",
        )
    else:
        show(found, output)


@command.command(
    epilog=examples(
        "geolog cursor describe shop/orders billing",
        "geolog cursor describe shop/orders billing -o json",
    )
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("cursor", metavar="CURSOR")
def describe(stream: str, cursor: str) -> None:
    """Show a cursor: its readers, and position and lag in each partition."""
    _show(ask(lambda log: log.describe_cursor(stream, cursor), minds_region=True))


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
def seek(*, stream: str, cursor: str, to: str, force: bool) -> None:
    """Move a cursor in all partitions, or in one.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P.
    """
    bound = parse_bound(to, now_us=_now_us)
    _show(
        ask(
            lambda log: log.seek_cursor(stream, cursor, to=bound, force=force),
            minds_region=True,
        )
    )


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


@command.command(
    epilog=examples(
        "geolog cursor delete shop/orders billing",
        "geolog cursor delete shop/orders billing --yes",
    )
)
@click.argument("stream", metavar="STREAM", type=stream_name)
@click.argument("cursor", metavar="CURSOR")
@click.option("--force", is_flag=True, help="Also while it is read; its readers fail.")
def delete(*, stream: str, cursor: str, force: bool) -> None:
    """Delete a cursor and its positions. This cannot be undone."""
    confirm(f"Delete cursor {cursor} of {stream} permanently?")
    ask(lambda log: log.delete_cursor(stream, cursor, force=force), minds_region=True)


def _row(cursor: CursorDescription) -> dict[str, object]:
    """Row of one cursor, to fit 80 columns."""
    return {
        "cursor": cursor.cursor,
        "is_shared": cursor.is_shared,
        "readers": len(cursor.readers),
        "lag_records": cursor.lag_records,
        "lag_bytes": cursor.lag_bytes,
        "lag_s": cursor.lag_s,
    }


def _show(cursor: CursorDescription) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(cursor, output)
        return
    show(
        cursor,
        output,
        (
            "stream",
            "cursor",
            "is_shared",
            "created_us",
            "lag_records",
            "lag_bytes",
            "lag_s",
        ),
    )
    if cursor.readers:
        print()
        show(cursor.readers, output)
    print()
    show(
        cursor.partition_list,
        output,
        (
            "partition",
            "reader",
            "sequence",
            "end_sequence",
            "lag_records",
            "lag_bytes",
            "lag_s",
        ),
    )
