"""`geolog segment`: what a stream consists of."""

import attrs
import click

from geolog.catalog.descriptions import SegmentDescription
from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show

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


@command.command(
    "ls",
    epilog=examples(
        "geolog segment ls shop/orders",
        "geolog segment ls shop/orders --limit 10   # The last ten.",
        "geolog segment ls 'shop/clicks#2' -o jsonl",
    ),
)
@click.argument("name", metavar="STREAM", type=partition_or_stream)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the last N segments of each partition.",
)
def list_(name: str, limit: int | None) -> None:
    """List the stream's segments, oldest first; with -o json also where each one lies."""
    segments = ask(lambda log: log.list_segments(name, limit=limit))
    output = this_invocation().config.output
    if output != "table":
        show(segments, output)
        return
    rows = [
        attrs.asdict(one, recurse=False) | {"last_sequence": _last(one)} for one in segments
    ]
    show(rows, output, _COLUMNS, empty="no segments: nothing was appended yet")


def _last(segment: SegmentDescription) -> int | None:
    """Of its last record, if it has any."""
    last = segment.last_sequence
    return None if last is None or last < segment.first_sequence else last
