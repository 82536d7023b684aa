"""`geolog append --spool`: takes records to the local disk, and sends them while it can."""

import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs
import click
import trio

from geolog.cli.append_source import (
    AppendOptions,
    Source,
    check_record,
    push_inputs,
    stop_at_signals,
)
from geolog.cli.invocation import Invocation, tell
from geolog.cli.session import open_log
from geolog.cli.terminal.output import show
from geolog.cli.terminal.progress import Progress
from geolog.cli.terminal.record_formats import Parser
from geolog.cli.terminal.record_input import open_inputs
from geolog.client.spooling.spool_facts import SpoolFacts
from geolog.client.spooling.spool_inlet import SpoolConfig
from geolog.client.spooling.spooled_writer import SpooledWriter, open_spooled_writer
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.partition.repeated_batch import ForgottenSeqError
from geolog.settings.quantities import counted, format_seconds
from geolog.wire.session.messages import RecordContent
from topology.errors import InvalidArgumentError, TooLargeError, UnavailableError


@attrs.define
class SpoolTally:
    """Counts of one run."""

    spooled: int = 0
    """Records that were written to the spool."""
    repeated: int = 0
    """Records whose seq the spool had taken before; they were not taken again."""
    found: int = 0
    """Records of earlier runs that were in the spool, without an answer."""
    unanswered: int = 0
    """Records that are in the spool at the end, without an answer."""
    refused: int = 0
    """Records that the log refused for good."""


async def append_spooled(invocation: Invocation, options: AppendOptions) -> None:
    """Take all input into the spool, and send what is in it."""
    with open_inputs(options.files) as inputs:
        await _append(invocation, options, Source(inputs))


async def _append(invocation: Invocation, options: AppendOptions, source: Source) -> None:
    tally, started_s = SpoolTally(), trio.current_time()
    with Progress(
        "records in the spool without an answer",
        sys.stderr,
        is_forced=options.is_progress_shown,
    ) as progress:
        async with _opened(invocation, options) as writer, trio.open_nursery() as nursery:
            tally.found = writer.spool_statistics().unanswered_records
            await nursery.start(stop_at_signals, source)
            with source.scope:
                await push_inputs(source.input, options, _Pusher(options, writer, tally).push)
            await writer.wait_spooled()
            if not source.is_interrupted:
                await _deliver(invocation, options, writer, progress)
            figures = writer.spool_statistics()
            tally.unanswered, tally.refused = (
                figures.unanswered_records,
                figures.refused_records,
            )
            nursery.cancel_scope.cancel(reason="all is answered")
    if source.is_interrupted:
        tell(
            f"interrupted: {counted(tally.unanswered, 'record')} in {options.spool} without an"
            " answer; the next run sends them"
        )
        raise click.Abort
    output = invocation.config.output
    took_s = trio.current_time() - started_s
    if output == "json":
        show(attrs.asdict(tally) | {"seconds": took_s}, output)
        return
    earlier = f", {tally.found:,} of an earlier run" if tally.found else ""
    repeated = f"; {tally.repeated:,} already taken before" if tally.repeated else ""
    sent = tally.spooled + tally.found
    tell(f"{counted(sent, 'record')} sent in {took_s:.2f} s{earlier}{repeated}")


@asynccontextmanager
async def _opened(
    invocation: Invocation, options: AppendOptions
) -> AsyncIterator[SpooledWriter]:
    assert options.spool is not None
    assert options.writer_id is not None

    @asynccontextmanager
    async def open_session() -> AsyncIterator[Writer]:
        # It connects for each session: a run may begin while nothing answers at all.
        async with (
            open_log(invocation, minds_region=True, via=options.via) as log,
            log.open_writer(options.stream, writer_id=options.writer_id) as writer,
        ):
            yield writer

    async with open_spooled_writer(
        options.spool,
        SpoolFacts(
            cluster=invocation.config.cluster,
            stream=options.stream,
            writer_id=options.writer_id,
        ),
        SpoolConfig(spool_bytes=options.spool_bytes),
        open_writer=open_session,
        rng=random.Random(),
        now_us=lambda: time.time_ns() // 1000,  # noqa: TID251 - where it is born.
    ) as writer:
        yield writer


async def _deliver(
    invocation: Invocation, options: AppendOptions, writer: SpooledWriter, progress: Progress
) -> None:
    """Wait for the log as long as it answers. UnavailableError once it has not for a while."""
    timeout_s, left = invocation.config.timeout_s, -1
    patience = trio.CancelScope(deadline=trio.current_time() + timeout_s)
    with patience:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal left
                while True:
                    now = writer.spool_statistics().unanswered_records
                    if now != left:
                        left, patience.deadline = now, trio.current_time() + timeout_s
                    progress.at(now)
                    await writer.wait_answer()

            nursery.start_soon(watch)
            await writer.flush()
            nursery.cancel_scope.cancel(reason="all is answered")
    if patience.cancelled_caught:
        trouble = writer.spool_statistics().trouble or "the log does not answer"
        raise UnavailableError(
            f"{counted(max(left, 0), 'record')} on disk in {options.spool}, and not in the log"
            f" yet: no answer within {format_seconds(timeout_s)} (--timeout): {trouble}. The"
            " same command sends them later, each once"
        )


class _Pusher:
    """Puts records into the spool."""

    def __init__(
        self, options: AppendOptions, writer: SpooledWriter, tally: SpoolTally
    ) -> None:
        self._writer = writer
        self._tally = tally
        self._seq = options.first_seq

    async def push(self, parser: Parser, records: Iterator[RecordContent]) -> None:
        """Put all of them in, as the parser yields them."""
        for outgoing in records:
            try:
                await self._push(outgoing)
            except ForgottenSeqError:
                self._tally.repeated += 1
            except (InvalidArgumentError, TooLargeError):
                check_record(outgoing, parser.place)
                raise
            else:
                self._tally.spooled += 1
            self._seq += 1
        await trio.lowlevel.checkpoint()

    async def _push(self, outgoing: RecordContent) -> None:
        while True:
            fields = RecordFields(
                value=outgoing.value,
                key=outgoing.key,
                headers=outgoing.headers,
                transaction_id=outgoing.transaction_id,
                local_only=outgoing.local_only,
                seq=self._seq,
                is_posted=True,
            )
            try:
                self._writer.append_fields_nowait(fields)
            except trio.WouldBlock:
                await self._writer.wait_writable()
                continue
            return
