"""The work behind `geolog read`."""

import os
import stat
import sys
import time
from collections.abc import Iterable
from functools import partial

import attrs
import click
import trio
from click.core import ParameterSource

from geolog.cli.choices import Format
from geolog.cli.exits import Exit
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.session import Patience, open_log, too_slow
from geolog.cli.signals import ending_at_signals
from geolog.cli.terminal.output import Plain, print_json, show
from geolog.cli.terminal.progress import Progress
from geolog.cli.terminal.read_statistics import read_statistics_line
from geolog.cli.terminal.record_formats import value_formatter
from geolog.client.hedging import hedge_policy
from geolog.client.reading.bounds import Bound, parse_bound
from geolog.client.reading.record import Gap, GapReason, Record
from geolog.client.reading.record_documents import record_document
from geolog.settings.command_config import Output
from geolog.settings.quantities import counted


@attrs.frozen(kw_only=True)
class ReadOptions:
    """Options of one `geolog read`."""

    stream: str
    start: Bound
    stop: Bound | None
    count_max: int | None
    is_following: bool
    cursor: str | None
    is_shared: bool
    is_taking: bool
    format: Format
    key_separator: str | None
    hedge: str
    is_progress_shown: bool


def read(
    context: click.Context,
    *,
    stream: str,
    start: str,
    stop: str | None,
    count: int | None,
    follow: bool,
    format_: Format,
    key_separator: str | None,
    cursor: str | None,
    shared: bool,
    take: bool,
    hedge: str,
    progress: bool,
) -> None:
    """Read records to stdout: their values, or with -o jsonl all their fields."""
    hedge_policy(hedge)  # A mistake is reported before anything is opened.
    if cursor is None and (shared or take):
        raise click.UsageError("--shared and --take are for a cursor: give --cursor NAME, too")
    _check_forms(context, format_, key_separator)
    if follow and stop is not None:
        raise click.UsageError("give either --follow or --to, not both")
    options = ReadOptions(
        stream=stream,
        start=parse_bound(start, now_us=_now_us),
        stop=None if stop is None else parse_bound(stop, now_us=_now_us),
        count_max=count,
        is_following=follow,
        cursor=cursor,
        is_shared=shared,
        is_taking=take,
        format=format_,
        key_separator=key_separator,
        hedge=hedge,
        is_progress_shown=progress,
    )
    trio.run(_read_to_a_signal, this_invocation(), options)


def _check_forms(context: click.Context, format_: Format, key_separator: str | None) -> None:
    """UsageError if two options say how to print records, and one would win silently."""
    invocation = this_invocation()
    output = invocation.config.output
    if key_separator is not None and (format_ != "lines" or output != "table"):
        form = f"-o {output}" if output != "table" else f"--format {format_}"
        raise click.UsageError(f"--key-separator is for lines: drop it, or drop {form}")
    is_given = context.get_parameter_source("format_") is ParameterSource.COMMANDLINE
    if is_given and output != "table":
        raise click.UsageError(
            f"give either --format {format_}, for the records alone, or -o {output}, for all"
            " their fields"
        )


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


async def _read_to_a_signal(invocation: Invocation, options: ReadOptions) -> None:
    """Read; at a signal, a read with a cursor commits what it has printed."""
    if options.cursor is None:
        await _read(invocation, options)
    elif not await ending_at_signals(partial(_is_read, invocation), options):
        sys.exit(Exit.INTERRUPTED)


async def _is_read(invocation: Invocation, options: ReadOptions) -> bool:
    await _read(invocation, options)
    return True


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
    is_forced = options.is_progress_shown
    with Progress(
        "records read", sys.stderr, is_forced=is_forced, is_silent=is_silent
    ) as progress:
        async with trio.open_nursery() as nursery:
            if options.is_following:
                nursery.start_soon(_end_with_taker)
            await _print_runs(invocation, options, patience, printer, progress)
            nursery.cancel_scope.cancel(reason="all is printed")


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
        open_log(invocation, minds_region=True, hedge=options.hedge) as log,
        log.open_reader(
            options.stream,
            start=options.start,
            stop=options.stop,
            follow=options.is_following,
            cursor=options.cursor,
            shared=options.is_shared,
            take=options.is_taking,
            auto_commit=options.cursor is None,
        ) as reader,
    ):
        if options.is_following:
            patience.suspend()
        # A count may end within a run, and what is not printed is not committed.
        is_by_item = options.cursor is not None and options.count_max is not None
        async for item in reader.items() if is_by_item else reader.runs():
            if isinstance(item, Gap):
                printer.take_gap(item)
            else:
                printer.take_all([item] if isinstance(item, Record) else item)
            printer.flush()
            progress.at(printer.count)
            if options.cursor is not None and invocation.config.output != "json":
                reader.commit_nowait()
            if printer.count == options.count_max:
                break
            if not options.is_following:
                patience.progressed()
        printer.end()
        if options.cursor is not None:
            printer.flush()
            reader.commit_nowait()
        if options.is_progress_shown and not invocation.config.proxy:
            progress.clear()
            tell(read_statistics_line(log.read_statistics()))


class _Printer:
    """Prints records on stdout in the requested format."""

    def __init__(self, output: Output, options: ReadOptions) -> None:
        self.count = 0
        self._output = output
        self._count_max = options.count_max
        self._as_bytes = value_formatter(options.format, key_separator=options.key_separator)
        self._collected: list[Plain] = []
        self._local_only_count = 0
        """Records that stay in another region."""

    def take_all(self, records: Iterable[Record]) -> None:
        """Print records, up to the count."""
        for record in records:
            self.take(record)
            if self.count == self._count_max:
                break

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
        if gap.epoch is not None:
            document["epoch"] = gap.epoch
        match self._output:
            case "jsonl":
                print_json(document)
            case "json":
                self._collected.append(document)
            case "table" if gap.reason is GapReason.LOCAL_ONLY:
                assert gap.from_sequence is not None
                self._local_only_count += gap.to_sequence - gap.from_sequence
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
        """Print the single JSON document, if that is the format; count what is elsewhere."""
        if self._local_only_count:
            tell(
                f"{counted(self._local_only_count, 'local-only record')} of other regions left"
                " out"
            )
        if self._output == "json":
            show(self._collected, self._output)
