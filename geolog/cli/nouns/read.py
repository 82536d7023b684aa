"""`geolog read`: prints the records of a stream between two positions."""

import os
import stat
import sys
import time

import attrs
import click
import trio

from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Invocation, Verb, examples, tell, this_invocation
from geolog.cli.session import Patience, open_log, too_slow
from geolog.cli.settings.sources import Output
from geolog.cli.terminal.output import Plain, print_json, show
from geolog.cli.terminal.progress import Progress
from geolog.cli.terminal.record_formats import FORMATS, Format, value_formatter
from geolog.client.reading.bounds import Bound, parse_bound
from geolog.client.reading.record import Gap, Record
from geolog.client.reading.record_documents import record_document


@attrs.frozen(kw_only=True)
class ReadOptions:
    """Options of one `geolog read`."""

    stream: str
    start: Bound
    stop: Bound | None
    count_max: int | None
    is_following: bool
    format: Format
    key_separator: str | None


@click.command(
    cls=Verb,
    name="read",
    epilog=examples(
        "geolog read shop/orders --from last:10",
        "geolog read shop/orders --from time:-1h --follow",
        "geolog read 'shop/clicks#2' --from sequence:1000 --count 5 -o jsonl",
    ),
)
@click.argument("stream", metavar="STREAM[#P]", type=partition_or_stream)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="Start position: earliest, latest, last:N, a DLSN (e.g. 3-120-0), sequence:N[@EPOCH],"
    " time:RFC3339, time:-1h or txid:N.",
)
@click.option(
    "--to",
    "stop",
    metavar="POSITION",
    help="Stop before this position. [default: the end of the stream when the read starts]",
)
@click.option(
    "--count", type=click.IntRange(min=0), metavar="N", help="Read at most N records."
)
@click.option(
    "--follow", is_flag=True, help="At the end, wait for new records until interrupted."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Print each key and TEXT before its value (lines format only).",
)
@click.option("--cursor", hidden=True)
@click.option("--hedge", hidden=True)
def command(
    *,
    stream: str,
    start: str,
    stop: str | None,
    count: int | None,
    follow: bool,
    format_: Format,
    key_separator: str | None,
    cursor: str | None,
    hedge: str | None,
) -> None:
    """Read records to stdout: their values, or with -o jsonl all their fields.

    A DLSN, sequence or transaction id is a position in one partition: if the stream has
    several partitions, name one as STREAM#P. "append --format jsonl" accepts what
    "read -o jsonl" prints.
    """
    for name, value in {"--cursor": cursor, "--hedge": hedge}.items():
        if value is not None:
            raise click.UsageError(f"{name} is not implemented yet")
    if follow and stop is not None:
        raise click.UsageError("give either --follow or --to, not both")
    options = ReadOptions(
        stream=stream,
        start=parse_bound(start, now_us=_now_us),
        stop=None if stop is None else parse_bound(stop, now_us=_now_us),
        count_max=count,
        is_following=follow,
        format=format_,
        key_separator=key_separator,
    )
    trio.run(_read, this_invocation(), options)


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


async def _read(invocation: Invocation, options: ReadOptions) -> None:
    patience = Patience(invocation)
    with patience.scope:
        await _print_records(invocation, options, patience)
    if patience.scope.cancelled_caught:
        raise await too_slow(invocation)


async def _print_records(
    invocation: Invocation, options: ReadOptions, patience: Patience
) -> None:
    printer = _Printer(invocation.config.output, options)
    if options.count_max == 0:
        printer.end()
        return
    # On a terminal the records themselves show the progress.
    is_silent = sys.stdout.isatty()
    with Progress("records read", sys.stderr, is_silent=is_silent) as progress:
        async with trio.open_nursery() as nursery:
            if options.is_following:
                nursery.start_soon(_end_with_taker)
            await _print_runs(invocation, options, patience, printer, progress)
            nursery.cancel_scope.cancel(reason="all is printed")
    printer.end()


async def _end_with_taker() -> None:
    """Raise BrokenPipeError when the reader of our output closes its end of the pipe.

    Otherwise `read --follow | head` would wait for a record that nobody wants.
    """
    stdout = sys.stdout.fileno()
    if stat.S_ISFIFO(os.fstat(stdout).st_mode):
        await trio.lowlevel.wait_readable(stdout)  # Only when the other end closes.
        raise BrokenPipeError


async def _print_runs(
    invocation: Invocation,
    options: ReadOptions,
    patience: Patience,
    printer: "_Printer",
    progress: Progress,
) -> None:
    async with (
        open_log(invocation, minds_region=True) as log,
        log.open_reader(
            options.stream, start=options.start, stop=options.stop, follow=options.is_following
        ) as reader,
    ):
        if options.is_following:
            patience.suspend()
        async for run in reader.runs():
            if isinstance(run, Gap):
                printer.take_gap(run)
                continue
            for record in run:
                printer.take(record)
                if printer.count == options.count_max:
                    break
            printer.flush()
            progress.at(printer.count)
            if printer.count == options.count_max:
                break
            if not options.is_following:
                patience.progressed()


class _Printer:
    """Prints records on stdout in the requested format."""

    def __init__(self, output: Output, options: ReadOptions) -> None:
        self.count = 0
        self._output = output
        self._as_bytes = value_formatter(options.format, key_separator=options.key_separator)
        self._collected: list[Plain] = []

    def take(self, record: Record) -> None:
        """Print one record, or keep it for the single document at the end."""
        self.count += 1
        match self._output:
            case "jsonl":
                print_json(record_document(record))
            case "json":
                self._collected.append(record_document(record))
            case "table":
                sys.stdout.buffer.write(self._as_bytes(record))

    def take_gap(self, gap: Gap) -> None:
        """Report missing records."""
        document: dict[str, Plain] = {
            "gap": gap.reason.value,
            "stream": gap.stream,
            "partition": gap.partition,
            "from": gap.from_sequence,
            "to": gap.to_sequence,
        }
        match self._output:
            case "jsonl":
                print_json(document)
            case "json":
                self._collected.append(document)
            case "table":
                first = "up" if gap.from_sequence is None else gap.from_sequence
                tell(
                    f"{gap.stream}#{gap.partition}: records {first} to {gap.to_sequence - 1}"
                    f" are {gap.reason.value}"
                )

    def flush(self) -> None:
        """Flush stdout, so that its reader sees every record so far."""
        sys.stdout.flush()

    def end(self) -> None:
        """Print the single JSON document, if that is the format."""
        if self._output == "json":
            show(self._collected, self._output)
