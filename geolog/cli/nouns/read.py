"""`geolog read`: a stream's records on stdout, from anywhere to anywhere."""

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
from geolog.cli.terminal.record_formats import FORMATS, Format, record_document, value_formatter
from geolog.client.reading.bounds import Bound, parse_bound
from geolog.client.reading.record import Gap, Record


@attrs.frozen(kw_only=True)
class ReadOptions:
    """What one `geolog read` was asked for."""

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
@click.argument("stream", type=partition_or_stream)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="earliest, latest, last:N, DLSN, sequence:N[@EPOCH], time:RFC3339, time:-1h, txid:N.",
)
@click.option("--to", "stop", metavar="POSITION", help="Default: the end when it was started.")
@click.option(
    "--count", type=click.IntRange(min=0), metavar="N", help="At most so many records."
)
@click.option("--follow", is_flag=True, help="Wait for what comes; never end.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="How records stand in the output.",
)
@click.option("--key-separator", metavar="TEXT", help="Print keys too, before it (lines only).")
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
    """Read STREAM's records to stdout: their values, or with -o jsonl all that is known.

    What `read -o jsonl` prints, `append --format jsonl` takes back.
    """
    for name, value in {"--cursor": cursor, "--hedge": hedge}.items():
        if value is not None:
            raise click.UsageError(f"{name} is not built yet")
    if follow and stop is not None:
        raise click.UsageError("give --follow or --to, not both")
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
    # On a terminal the records themselves show how far it is.
    is_silent = sys.stdout.isatty()
    with Progress("records read", sys.stderr, is_silent=is_silent) as progress:
        async with trio.open_nursery() as nursery:
            if options.is_following:
                nursery.start_soon(_end_with_taker)
            await _print_runs(invocation, options, patience, printer, progress)
            nursery.cancel_scope.cancel(reason="all is printed")
    printer.end()


async def _end_with_taker() -> None:
    """Raise BrokenPipeError when nobody takes our output any more: of a pipe it can be known.

    Else `read --follow | head` would wait for a record that nobody wants, perhaps for ever.
    """
    stdout = sys.stdout.fileno()
    if stat.S_ISFIFO(os.fstat(stdout).st_mode):
        await trio.lowlevel.wait_readable(stdout)  # It never is, but for the end of the pipe.
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
    """Puts records on stdout in the form that was asked for."""

    def __init__(self, output: Output, options: ReadOptions) -> None:
        self.count = 0
        self._output = output
        self._as_bytes = value_formatter(options.format, key_separator=options.key_separator)
        self._collected: list[Plain] = []

    def take(self, record: Record) -> None:
        """Print one record, or keep it for the one document at the end."""
        self.count += 1
        match self._output:
            case "jsonl":
                print_json(record_document(record))
            case "json":
                self._collected.append(record_document(record))
            case "table":
                sys.stdout.buffer.write(self._as_bytes(record))

    def take_gap(self, gap: Gap) -> None:
        """Print that records are missing."""
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
                first = (
                    "the place asked for" if gap.from_sequence is None else gap.from_sequence
                )
                tell(
                    f"{gap.stream}#{gap.partition}: records from {first} to before"
                    f" {gap.to_sequence} are {gap.reason.value}"
                )

    def flush(self) -> None:
        """Let whoever reads our output see what is there."""
        sys.stdout.flush()

    def end(self) -> None:
        """Print the one document."""
        if self._output == "json":
            show(self._collected, self._output)
