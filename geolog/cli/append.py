"""`geolog append`: a record for each line of stdin, many in flight, answers in order."""

import os
import signal
import sys
from collections.abc import Iterator

import attrs
import click
import trio

from geolog.cli.arguments import stream_name
from geolog.cli.exits import exit_of
from geolog.cli.invocation import Invocation, Verb, tell, this_invocation
from geolog.cli.output import Plain, print_json, show
from geolog.cli.progress import Progress
from geolog.cli.recordformats import FORMATS, Format, Outgoing, parser_of
from geolog.cli.session import Patience, open_log, too_slow
from geolog.client.pipeline import Answered, Pipeline
from topology.errors import GeologError, InvalidArgumentError

_READ_BYTES_MAX = 1 << 20


class AnswersUnprintedError(GeologError):
    """Whoever read the answers is gone, or the disk behind them is full."""


@attrs.frozen(kw_only=True)
class AppendOptions:
    """What one `geolog append` was asked for."""

    stream: str
    format: Format
    key_separator: str | None
    is_progress_shown: bool


@attrs.define
class AppendTally:
    """What has been appended so far."""

    appended: int = 0
    bytes: int = 0
    first: dict[str, Plain] | None = None
    last: dict[str, Plain] | None = None


@click.command(cls=Verb, name="append")
@click.argument("stream", type=stream_name)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="lines", show_default=True
)
@click.option("--key-separator", metavar="TEXT", help="Before it stands the key (lines only).")
@click.option("--ack", type=click.Choice(["durable"]), default="durable", show_default=True)
@click.option(
    "--progress", is_flag=True, help="Show progress also where stderr is no terminal."
)
@click.option("--writer", metavar="ID", hidden=True)
@click.option("--first-seq", type=int, hidden=True)
@click.option("--expect-sequence", type=int, hidden=True)
def command(
    *,
    stream: str,
    format_: Format,
    key_separator: str | None,
    ack: str,
    progress: bool,
    writer: str | None,
    first_seq: int | None,
    expect_sequence: int | None,
) -> None:
    """Append records from stdin to STREAM; each is answered when it is durable.

    With -o jsonl, one answer a record, in order:
    {"partition":0,"dlsn":"1-0-0","sequence":0,"duplicate":false}
    """
    assert ack == "durable"
    later = {"--writer": writer, "--first-seq": first_seq, "--expect-sequence": expect_sequence}
    for name, value in later.items():
        if value is not None:
            raise click.UsageError(
                f"{name} is not built yet: a record that is appended again is a new record"
            )
    if key_separator is not None and format_ != "lines":
        raise click.UsageError(f"--key-separator goes with --format lines, not {format_}")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty: name the text between key and value")
    options = AppendOptions(
        stream=stream, format=format_, key_separator=key_separator, is_progress_shown=progress
    )
    trio.run(_append, this_invocation(), options)


@attrs.define
class Source:
    """Whether more is read from stdin. What was pushed before a stop is still answered."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    failure: GeologError | None = None
    is_interrupted: bool = False

    def stop(self, failure: GeologError | None = None) -> None:
        """Take no more; the first failure is the one that is told."""
        self.failure = self.failure or failure
        self.scope.cancel(reason="no more input is taken")


async def _append(invocation: Invocation, options: AppendOptions) -> None:
    output = invocation.config.output
    tally, patience, source = AppendTally(), Patience(invocation), Source()
    started_s = trio.current_time()
    with Progress(
        "records appended", sys.stderr, is_forced=options.is_progress_shown
    ) as progress:
        try:
            with patience.scope:
                await _pump(invocation, options, tally, patience, source, progress)
            if patience.scope.cancelled_caught:
                raise too_slow(invocation)
            if source.failure is not None:
                raise source.failure
        except* GeologError as errors:
            raise _with_tally(errors, tally) from errors
    if source.is_interrupted:
        tell(f"interrupted: {_reached(tally)}, and no other")
        raise click.Abort
    if output == "json":
        show(attrs.asdict(tally) | {"seconds": trio.current_time() - started_s}, output)
    elif output == "table":
        took_s = trio.current_time() - started_s
        last = f", the last at {tally.last['dlsn']}" if tally.last else ""
        tell(f"{tally.appended:,} records appended in {took_s:.2f} s{last}")


async def _pump(
    invocation: Invocation,
    options: AppendOptions,
    tally: AppendTally,
    patience: Patience,
    source: Source,
    progress: Progress,
) -> None:
    async with (
        open_log(invocation) as log,
        log.open_writer(options.stream) as writer,
        trio.open_nursery() as nursery,
    ):
        pipeline = Pipeline(writer)
        await nursery.start(_stop_at_signals, source)
        nursery.start_soon(_push_all, options, pipeline, patience, source)
        patience.suspend()
        while answers := await pipeline.next_answers():
            try:
                _note(answers, tally, is_printed=_prints_answers(invocation, source))
            except OSError as error:
                source.stop(AnswersUnprintedError(f"stdout takes no more: {error.strerror}"))
            progress.at(tally.appended)
            # Nothing is owed while all is answered: then we wait for stdin.
            patience.progressed() if pipeline.unanswered_count else patience.suspend()
        nursery.cancel_scope.cancel(reason="all is answered")


def _prints_answers(invocation: Invocation, source: Source) -> bool:
    is_stdout_lost = isinstance(source.failure, AnswersUnprintedError)
    return invocation.config.output == "jsonl" and not is_stdout_lost


async def _stop_at_signals(source: Source, task_status: trio.TaskStatus[None]) -> None:
    """Stop in order at the first signal, at once at the second."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if source.is_interrupted:
                raise KeyboardInterrupt
            source.is_interrupted = True
            source.stop()


async def _push_all(
    options: AppendOptions, pipeline: Pipeline, patience: Patience, source: Source
) -> None:
    try:
        with source.scope:
            await _push_stdin(options, pipeline, patience)
    except GeologError as error:
        source.stop(error)  # Told when all before it is answered.
    pipeline.close()


async def _push_stdin(options: AppendOptions, pipeline: Pipeline, patience: Patience) -> None:
    parser = parser_of(options.format, key_separator=options.key_separator)
    while data := await _read_stdin():
        await _push(parser.feed(data), pipeline, patience)
    await _push(parser.end(), pipeline, patience)


async def _push(records: Iterator[Outgoing], pipeline: Pipeline, patience: Patience) -> None:
    for outgoing in records:
        if not pipeline.unanswered_count:
            patience.progressed()
        await pipeline.push(
            outgoing.value,
            key=outgoing.key,
            headers=outgoing.headers,
            transaction_id=outgoing.transaction_id,
        )


async def _read_stdin() -> bytes:
    # Not through sys.stdin: a thread left waiting in it would hold its lock at exit.
    try:
        return await trio.to_thread.run_sync(
            os.read, 0, _READ_BYTES_MAX, abandon_on_cancel=True
        )
    except OSError as error:
        raise InvalidArgumentError(
            f"stdin cannot be read: {error.strerror}; give it a file or a pipe of records"
        ) from error


def _note(answers: list[Answered], tally: AppendTally, *, is_printed: bool) -> None:
    tally.first = tally.first or _document(answers[0])
    tally.last = _document(answers[-1])
    tally.appended += len(answers)
    tally.bytes += sum(answered.size_bytes for answered in answers)
    if is_printed:
        for answered in answers:
            print_json(_document(answered))
        sys.stdout.flush()


def _document(answered: Answered) -> dict[str, Plain]:
    receipt = answered.receipt
    return {
        "partition": receipt.partition,
        "dlsn": str(receipt.dlsn),
        "sequence": receipt.sequence,
        "duplicate": receipt.duplicate,
    }


def _with_tally(errors: BaseExceptionGroup[GeologError], tally: AppendTally) -> GeologError:
    """The first error, with what was acknowledged before it: that much is safe."""
    error = min(_leaves(errors), key=exit_of)
    return type(error)(f"{error} ({_reached(tally)})")


def _reached(tally: AppendTally) -> str:
    reached = f", up to sequence {tally.last['sequence']}" if tally.last else ""
    return f"{tally.appended:,} records were acknowledged{reached}"


def _leaves(errors: BaseExceptionGroup[GeologError]) -> Iterator[GeologError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
