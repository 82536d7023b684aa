"""`geolog read`: prints the records of a stream between two positions."""

import click

from geolog.cli.arguments import readable
from geolog.cli.choices import FORMATS
from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by


@click.command(
    cls=Verb,
    name="read",
    epilog=examples(
        "geolog read shop/orders --from last:10",
        "geolog read shop/orders --from time:-1h --follow",
        "geolog read 'shop/clicks#2' --from sequence:1000 --count 5 -o jsonl",
        "geolog read shop/orders --cursor billing --follow",
        "geolog read 'shop/*' --follow -o jsonl",
    ),
)
@click.argument("stream", metavar="STREAM[#P]", type=readable)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="Start position: earliest, latest, last:N, a DLSN (e.g. 3-120-0), sequence:N[@EPOCH],"
    " time:RFC3339, time:-1h (or -1h alone) or txid:N.",
)
@click.option(
    "--to",
    "stop",
    metavar="POSITION",
    help="Stop before this position. [default: the end of the stream when the read starts]",
)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read at most N records.",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="At the end, wait for new records until interrupted.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="Form of the records alone, as append takes them. For all fields, positions included,"
    " use -o jsonl instead.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Print each key and TEXT before its value (--format lines only).",
)
@click.option(
    "--cursor",
    metavar="NAME",
    help="Resume where the cursor of this name stands, and commit what was printed. --from is"
    " for a new cursor.",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Divide the partitions among all readers that share the cursor.",
)
@click.option("--take", is_flag=True, help="Take the cursor from a reader that has it.")
@click.option(
    "--hedge",
    default="auto",
    show_default=True,
    metavar="POLICY",
    help="When a late read also goes to another replica: auto (later than usual), off, after a"
    " time (e.g. 25ms), or sla:TIME (e.g. sla:50ms), in time for an answer within it.",
)
@click.option(
    "--progress",
    is_flag=True,
    help="Show progress even if stderr is not a terminal, and statistics at the end.",
)
@click.pass_context
@done_by("geolog.cli.verbs.read", "read")
def command(*_: object, **__: object) -> None:
    """Read records to stdout: their values, or with -o jsonl all their fields.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P. "append --format jsonl" accepts what
    "read -o jsonl" prints.

    With a pattern such as 'shop/*', quoted for the shell, all streams that it matches are read;
    with --follow, those that are created later, too, from their first record.
    """
