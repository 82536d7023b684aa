"""`geolog append`: appends records of files or stdin, many in flight, answered in order."""

import click

from geolog.cli.arguments import partition_or_stream
from geolog.cli.choices import ACK_CHOICES, FORMATS
from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes


@click.command(
    cls=Verb,
    name="append",
    epilog=examples(
        "geolog append shop/orders orders.txt more-orders.txt",
        "tail -f orders.log | geolog append shop/orders",
        "geolog append shop/orders orders.txt --writer loader-1   # Safe to rerun.",
        "geolog append shop/orders orders.txt --writer till-7 --spool /var/spool/till-7",
        "echo '7=paid' | geolog append shop/orders --key-separator = -o jsonl",
    ),
)
@click.argument("stream", metavar="STREAM[#P]", type=partition_or_stream)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="Input format.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Split each line into key and value at TEXT (lines format only).",
)
@click.option(
    "--keyless-ok",
    is_flag=True,
    help="Append lines that lack the separator without a key; else they are an error.",
)
@click.option(
    "--ack",
    type=click.Choice(ACK_CHOICES),
    default="durable",
    show_default=True,
    help="Acknowledge a record never (none), once enough nodes have it in memory (received), or"
    " once they have it on disk (durable).",
)
@click.option(
    "--via",
    type=click.Choice(["direct", "proxy"]),
    help="Path of the records: through write proxies (proxy), or from this process, which then"
    " owns the stream, to the storage nodes (direct). [default: proxy if one is up]",
)
@click.option(
    "--progress", is_flag=True, help="Show progress even if stderr is not a terminal."
)
@click.option(
    "--writer",
    metavar="ID",
    help="Writer id, e.g. loader-1: numbers the lines, so that rerunning the same input appends"
    " nothing twice.",
)
@click.option(
    "--first-seq",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seq of the first line (needs --writer).",
)
@click.option(
    "--spool",
    metavar="DIR",
    help="Write the records to this directory first, and send them from there: also those of an"
    " earlier run, under the same seqs (needs --writer).",
)
@click.option(
    "--spool-bytes",
    type=parse_bytes,
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="Take no more input while the spool has this size.",
)
@click.option(
    "--expect-sequence",
    type=click.IntRange(min=0),
    metavar="N",
    help="Append nothing unless the first record would get this sequence.",
)
@click.option(
    "--local-only",
    is_flag=True,
    help="Keep the records in the region of the stream's home: relays do not carry them, and"
    " readers in other regions get a gap.",
)
@click.pass_context
@done_by("geolog.cli.verbs.append", "append")
def command(*_: object, **__: object) -> None:
    """Append records from FILEs, or else from stdin; each is acknowledged once it is durable.

    FILE - is stdin. Each file begins a new record.

    Formats: lines, one value per line; jsonl, one JSON object per line with value, and
    optionally key, headers, transaction_id and local_only (docs/COMMAND.md); length-prefixed,
    each value preceded by its length as a 4-byte big-endian number.

    With -o jsonl, prints one answer per record, in order:
    {"partition":0,"dlsn":"1-0-0","sequence":0,"duplicate":false}
    """
