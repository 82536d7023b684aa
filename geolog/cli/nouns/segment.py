"""`geolog segment`: lists the segments of a stream."""

import attrs
import click

from geolog.catalog.descriptions import SegmentDescription
from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show

# These fit 80 columns; JSON has the rest.
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
def list_(name: str, limit: int | None) -> None:
    """List the segments of a stream, oldest first; -o json adds the nodes of each."""
    segments = ask(lambda log: log.list_segments(name, limit=limit))
    output = this_invocation().config.output
    if output != "table":
        show(segments, output)
        return
    rows = [
        attrs.asdict(one, recurse=False) | {"last_sequence": _last(one)} for one in segments
    ]
    show(rows, output, _COLUMNS, empty="no segments: nothing has been appended yet")


def _last(segment: SegmentDescription) -> int | None:
    """Sequence of the last record, if there is one."""
    last = segment.last_sequence
    return None if last is None or last < segment.first_sequence else last
