"""The input of `geolog append`: its options, its records, and when it ends."""

import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs
import trio

from geolog.cli.choices import AckChoice, Format
from geolog.cli.signals import heeded
from geolog.cli.terminal.record_formats import Parser, parser_of
from geolog.cli.terminal.record_input import RecordInputs
from geolog.client.proxies.proxies import Via
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.protocol.append_failure import in_other_words
from geolog.wire.session.messages import RecordContent
from topology.errors import GeologError, InvalidArgumentError, TooLargeError

Push = Callable[[Parser, Iterator[RecordContent]], Awaitable[None]]
"""Appends records as the parser yields them."""


@attrs.frozen(kw_only=True)
class AppendOptions:
    """Options of one `geolog append`."""

    stream: str
    files: Sequence[str]
    """Names of the inputs; none for stdin."""
    format: Format
    key_separator: str | None
    is_keyless_ok: bool
    is_progress_shown: bool
    ack: AckChoice
    via: Via | None
    writer_id: str | None
    first_seq: int
    expect_sequence: int | None
    is_local_only: bool
    """Whether no record may leave the region of the stream's home."""
    spool: str | None
    """Directory of the writer's spool."""
    spool_bytes: int


@attrs.define
class Source:
    """Reading of the inputs. After a stop, records already pushed are still answered."""

    input: RecordInputs
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    opened_s: float = attrs.field(factory=trio.current_time)
    """When the writer was open."""
    failure: GeologError | None = None
    is_interrupted: bool = False

    def stop(self, failure: GeologError | None = None) -> None:
        """Stop reading; keep the first failure to report."""
        self.failure = self.failure or failure
        self.scope.cancel(reason="no more input is taken")


async def stop_at_signals(source: Source, task_status: trio.TaskStatus[None]) -> None:
    """Stop in an orderly way at the first signal, at once at the second."""
    with trio.open_signal_receiver(*heeded(signal.SIGINT, signal.SIGTERM)) as signals:
        task_status.started()
        async for _ in signals:
            if source.is_interrupted:
                raise KeyboardInterrupt
            source.is_interrupted = True
            source.stop()


async def push_inputs(inputs: RecordInputs, options: AppendOptions, push: Push) -> None:
    """Push the records of all inputs, in order. InvalidArgumentError."""
    for each in inputs.inputs:
        parser = parser_of(
            options.format,
            key_separator=options.key_separator,
            is_keyless_ok=options.is_keyless_ok,
            name=each.name,
        )
        while data := await each.read():
            await push(parser, parser.feed(data))
        await push(parser, parser.end())


def check_record(outgoing: RecordContent, place: str, *, is_local_only: bool = False) -> None:
    """Raise the error of a record that cannot be appended, with its place in the input.

    is_local_only: also if the record itself does not say so.
    """
    fields = RecordFields(
        value=outgoing.value,
        key=outgoing.key,
        headers=outgoing.headers,
        transaction_id=outgoing.transaction_id,
        local_only=is_local_only or outgoing.local_only,
    )
    try:
        size_of(fields)
    except (InvalidArgumentError, TooLargeError) as error:
        raise in_other_words(error, f"{place}: {error}") from error
