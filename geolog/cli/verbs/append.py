"""The work behind `geolog append`."""

import sys
from collections.abc import Iterator

import attrs
import click
import trio
from click.core import ParameterSource

from geolog.cli.append_source import (
    AppendOptions,
    Source,
    check_record,
    push_inputs,
    stop_at_signals,
)
from geolog.cli.append_spooled import append_spooled
from geolog.cli.choices import AckChoice, Format
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.recovery_progress import opened_with_progress
from geolog.cli.session import Patience, open_log, too_slow
from geolog.cli.terminal.append_tally import AppendTally, answer_document, with_tally
from geolog.cli.terminal.output import print_json, show
from geolog.cli.terminal.progress import Progress
from geolog.cli.terminal.record_formats import Parser
from geolog.cli.terminal.record_input import open_inputs
from geolog.client.proxies.proxies import Via
from geolog.client.writing.pipeline import AnsweredRun, Pipeline
from geolog.wire.session.messages import RecordContent
from topology.errors import GeologError, InvalidArgumentError, TooLargeError


class AnswersUnprintedError(GeologError):
    """Answers cannot be written: their reader is gone, or their disk is full."""


def append(
    context: click.Context,
    *,
    stream: str,
    files: tuple[str, ...],
    format_: Format,
    key_separator: str | None,
    keyless_ok: bool,
    ack: AckChoice,
    via: Via | None,
    progress: bool,
    writer: str | None,
    first_seq: int,
    spool: str | None,
    spool_bytes: int,
    expect_sequence: int | None,
    local_only: bool,
) -> None:
    """Append records from FILEs, or else from stdin."""
    is_numbered = context.get_parameter_source("first_seq") is ParameterSource.COMMANDLINE
    if is_numbered and writer is None:
        raise click.UsageError("--first-seq needs --writer: it numbers the lines of a writer")
    if ack == "none" and (writer is not None or expect_sequence is not None):
        raise click.UsageError(
            "--ack none gives no answers: drop it, or drop --writer and --expect-sequence"
        )
    if key_separator is not None and format_ != "lines":
        raise click.UsageError(f"--key-separator needs --format lines, not {format_}")
    if key_separator == "":
        raise click.UsageError(
            "--key-separator must not be empty: give the text between key and value"
        )
    if keyless_ok and key_separator is None:
        raise click.UsageError(
            "--keyless-ok is about lines without a key: give --key-separator"
        )
    options = AppendOptions(
        stream=stream,
        files=files,
        format=format_,
        key_separator=key_separator,
        is_keyless_ok=keyless_ok,
        is_progress_shown=progress,
        ack=ack,
        via=via,
        writer_id=writer,
        first_seq=first_seq,
        expect_sequence=expect_sequence,
        is_local_only=local_only,
        spool=spool,
        spool_bytes=spool_bytes,
    )
    if spool is None:
        trio.run(_append, this_invocation(), options)
        return
    _check_spooled(options)
    trio.run(append_spooled, this_invocation(), options)


def _check_spooled(options: AppendOptions) -> None:
    if options.writer_id is None:
        raise click.UsageError(
            "--spool needs --writer: the log recognises records that are sent again by their"
            " writer and seq"
        )
    if options.ack != "durable" or options.expect_sequence is not None:
        raise click.UsageError(
            "--spool takes records before the log answers: drop --ack and --expect-sequence"
        )
    if options.is_local_only:
        raise click.UsageError(
            "--spool may send records after the home has moved to another region: drop"
            " --local-only, or --spool"
        )
    if this_invocation().config.output == "jsonl":
        raise click.UsageError(
            "--spool takes records before the log answers, so there is no answer for each to"
            " print: drop -o jsonl (-o json prints the counts)"
        )


async def _append(invocation: Invocation, options: AppendOptions) -> None:
    with open_inputs(options.files) as inputs:
        await _append_inputs(invocation, options, Source(inputs))


async def _append_inputs(
    invocation: Invocation, options: AppendOptions, source: Source
) -> None:
    output = invocation.config.output
    tally, patience = AppendTally(), Patience(invocation)
    started_s = trio.current_time()
    with Progress(
        "records appended", sys.stderr, is_forced=options.is_progress_shown
    ) as progress:
        try:
            with patience.scope:
                await _pump(invocation, options, tally, patience, source, progress)
            if patience.scope.cancelled_caught:
                raise await too_slow(invocation)
            if source.failure is not None:
                raise source.failure
        except* GeologError as errors:
            raise with_tally(errors, tally) from errors
    if source.is_interrupted:
        tell(f"interrupted: {tally.reached()}; no others were appended")
        raise click.Abort
    opening_s = source.opened_s - started_s
    took_s = trio.current_time() - source.opened_s
    if output == "json":
        times = {"opening_seconds": opening_s, "seconds": opening_s + took_s}
        show(attrs.asdict(tally) | times, output)
    elif output == "table":
        tell(f"opened in {opening_s:.2f} s; {tally.summary(took_s)}")


async def _pump(
    invocation: Invocation,
    options: AppendOptions,
    tally: AppendTally,
    patience: Patience,
    source: Source,
    progress: Progress,
) -> None:
    async with (
        open_log(invocation, minds_region=True, via=options.via) as log,
        opened_with_progress(
            log.open_writer(
                options.stream,
                writer_id=options.writer_id,
                ack="durable" if options.ack == "none" else options.ack,
            ),
            log.recovery_progress,
            patience,
            sys.stderr,
            is_forced=options.is_progress_shown,
        ) as writer,
        trio.open_nursery() as nursery,
    ):
        source.opened_s = trio.current_time()
        pipeline = Pipeline(writer)
        await nursery.start(stop_at_signals, source)
        nursery.start_soon(_push_all, options, pipeline, patience, source)
        patience.suspend()
        while answers := await pipeline.next_answers():
            try:
                _take(answers, tally, is_printed=_prints_answers(invocation, source))
            except OSError as error:
                source.stop(
                    AnswersUnprintedError(f"cannot write answers to stdout: {error.strerror}")
                )
            progress.at(tally.appended, share=_share_done(source, tally, pipeline))
            # With everything answered we wait for stdin alone, without a time limit.
            patience.progressed() if pipeline.unanswered_count else patience.suspend()
        nursery.cancel_scope.cancel(reason="all is answered")


def _take(answers: list[AnsweredRun], tally: AppendTally, *, is_printed: bool) -> None:
    """Count these answers, and print them if requested."""
    for some in answers:
        tally.add(some)
    if is_printed:
        for some in answers:
            for receipt in some.receipts():
                print_json(answer_document(receipt, is_duplicate=some.is_duplicate))
        sys.stdout.flush()


def _share_done(source: Source, tally: AppendTally, pipeline: Pipeline) -> float | None:
    """Share of the input that is answered: what was read, less what is in flight."""
    taken = source.input.share_taken
    pushed_count = tally.answered_count + pipeline.unanswered_count
    return None if taken is None else taken * tally.answered_count / pushed_count


def _prints_answers(invocation: Invocation, source: Source) -> bool:
    is_stdout_lost = isinstance(source.failure, AnswersUnprintedError)
    return invocation.config.output == "jsonl" and not is_stdout_lost


async def _push_all(
    options: AppendOptions, pipeline: Pipeline, patience: Patience, source: Source
) -> None:
    try:
        with source.scope:
            pusher = _Pusher(options, pipeline, patience)
            await push_inputs(source.input, options, pusher.push)
    except GeologError as error:
        source.stop(error)  # Reported once everything before it is answered.
    pipeline.close()


class _Pusher:
    """Pushes records into the pipeline as the options say."""

    def __init__(self, options: AppendOptions, pipeline: Pipeline, patience: Patience) -> None:
        self._pipeline = pipeline
        self._patience = patience
        self._is_answered = options.ack != "none"
        self._seq = None if options.writer_id is None else options.first_seq
        self._expect_sequence = options.expect_sequence
        self._is_local_only = options.is_local_only

    async def push(self, parser: Parser, records: Iterator[RecordContent]) -> None:
        """Push all of them, as the parser yields them."""
        for outgoing in records:
            if not self._pipeline.unanswered_count:
                self._patience.progressed()
            try:
                await self._push(outgoing)
            except (InvalidArgumentError, TooLargeError):
                check_record(outgoing, parser.place, is_local_only=self._is_local_only)
                raise  # The record is well; an earlier one is not.

    async def _push(self, outgoing: RecordContent) -> None:
        pending = await self._pipeline.push(
            outgoing.value,
            key=outgoing.key,
            headers=outgoing.headers,
            transaction_id=outgoing.transaction_id,
            local_only=self._is_local_only or outgoing.local_only,
            seq=self._seq,
            expect_sequence=self._expect_sequence,
            is_answered=self._is_answered,
            is_forgotten_skipped=True,
        )
        if self._expect_sequence is not None and pending is not None:
            # If the first is refused, nothing may follow; else the rest continue from it.
            await pending.wait()
            self._expect_sequence = None
        if self._seq is not None:
            self._seq += 1
