"""The sink `geolog` of PySpark, for batches and streams.

Tasks stage what they are given; the driver commits it (`geolog.client.staging`). With
`exactlyOnce=false` tasks append directly, so a repeated task repeats its records. Spark makes a
new writer for every batch, some in processes of their own: nothing is kept between calls but
what the messages of tasks and the cluster's metadata say.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack

import attrs
import pyarrow as pa
import trio
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.sinks import PARTS_MAX
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import Log
from geolog.client.staging.sink_commit import SinkCommit
from geolog.client.staging.staging_writer import StagingWriter, open_staging_writer
from geolog.client.writing.writer import Writer
from geolog.protocol.sink_copy import NO_BATCH, NO_QUERY, StagedBatch, StagedPart
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.spark.connecting import connect_here
from geolog.spark.sink_options import SinkOptions, parse_sink_options
from geolog.spark.sink_rows import SinkRow, check_sink_schema, rows_in
from geolog.spark.worker_check import Reduced, checked_on_arrival
from topology.errors import (
    FencedError,
    GeologError,
    InvalidArgumentError,
    UnavailableError,
)

STREAMS_PER_TASK_MAX = 16
"""Streams that one task may write: each has a ledger or a writer of its own."""

_BATCH_WRITE = 0
"""The only batch of a batch write."""


_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"
"""Where Spark tells the tasks of a streaming query which batch and query they work for."""


@attrs.frozen
class StagedMessage(WriterCommitMessage):
    """What one task staged."""

    run: str
    query: str
    parts: tuple[StagedPart, ...]


class _Sink(ABC):
    """Writes to streams; the kinds of Spark's writers share it."""

    def __init__(self, options: SinkOptions, run: str) -> None:
        self._options = options
        # Tasks take along the name that they were planned with. The driver of a query is
        # another object: it learns that name from their messages.
        self._run_name = run

    def __reduce__(self) -> Reduced:
        """Travel to workers, which say so if they lack geolog."""
        return checked_on_arrival(self)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        try:
            batch, query = (NO_BATCH, "") if self._options.sink is None else self._work()
            parts = trio.run(self._write, iterator, batch)
            return StagedMessage(self._run_name, query, parts)
        except GeologError as error:
            raise error.with_traceback(None) from None

    async def _write(
        self, batches: Iterator[pa.RecordBatch], number: int
    ) -> tuple[StagedPart, ...]:
        async with AsyncExitStack() as stack:
            log = await stack.enter_async_context(connect_here(self._options))
            sink = self._options.sink
            target: _Staging | _Appending = (
                _Appending(log, stack)
                if sink is None
                else _Staging(log, stack, sink, number, self._run_name)
            )
            while True:
                # Spark may take its time: the connections must go on meanwhile.
                batch = await trio.to_thread.run_sync(next, batches, None)
                if batch is None:
                    return await target.finish()
                for row in rows_in(batch, self._options.stream):
                    await target.add(row)

    @abstractmethod
    def _work(self) -> tuple[int, str]:
        """The batch that this task works for, and the query."""

    def check(self) -> None:
        """Refuse a write to a stream that cannot take it, before any task runs."""

        async def look() -> None:
            async with connect_here(self._options) as log:
                if self._options.stream is None:
                    return
                if self._options.sink is None:  # Tasks append, wherever they run.
                    await _writable(log, self._options.stream)
                else:
                    await log.check_writable(self._options.stream)

        _run(look)

    def _commit(
        self,
        messages: list[WriterCommitMessage | None],
        batch: int,
        checkpoint: str = "",
        *,
        is_repeatable: bool,
    ) -> None:
        sink = self._options.sink
        if sink is None:
            return
        staged = [message for message in messages if isinstance(message, StagedMessage)]
        parts = tuple(part for message in staged for part in message.parts)
        if len(parts) > PARTS_MAX:
            streams_count = len({part.stream for part in parts})
            raise InvalidArgumentError(
                f"the batch has {len(parts)} staging ledgers, one for each stream of each Spark"
                f" partition, and at most {PARTS_MAX} fit: .coalesce("
                f"{max(1, PARTS_MAX // streams_count)}) the rows first, or write fewer streams"
                " at a time"
            )

        async def commit() -> None:
            async with connect_here(self._options) as log:
                given = StagedBatch(
                    batch,
                    parts,
                    copier=f"{log.access.rng.getrandbits(128):032x}",
                    run=staged[0].run if staged else "",
                    query=staged[0].query if staged else "",
                    checkpoint=checkpoint,
                    is_repeatable=is_repeatable,
                    is_loss_accepted=not self._options.is_failing_on_data_loss,
                )
                await SinkCommit(log, sink).commit(given)

        _run(commit)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        sink = self._options.sink
        if sink is None:
            return
        ended_runs = {self._run_name}
        ended_runs |= {
            message.run for message in messages if isinstance(message, StagedMessage)
        }

        async def abort() -> None:
            async with connect_here(self._options) as log:
                await SinkCommit(log, sink).abort(ended_runs)

        _run(abort)


class GeologSink(_Sink, DataSourceArrowWriter):
    """Writes one batch."""

    def _work(self) -> tuple[int, str]:
        return _BATCH_WRITE, NO_QUERY

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Bring what the tasks staged into the streams."""
        self._commit(messages, _BATCH_WRITE, is_repeatable=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks staged."""
        self._abort(messages)


class GeologStreamSink(_Sink, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def _work(self) -> tuple[int, str]:
        return int(_told_to_task(_BATCH_PROPERTY)), _told_to_task(_QUERY_PROPERTY)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's.
        """Bring what the tasks of a batch staged into the streams."""
        self._commit(messages, batchId, self._options.checkpoint, is_repeatable=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's.
        """Drop what the tasks of a batch staged."""
        self._abort(messages)


def _told_to_task(name: str) -> str:
    """A property that Spark gives to the tasks of a query, whatever stages come before."""
    task = TaskContext.get()
    told = None if task is None else task.getLocalProperty(name)
    if told is None:
        raise UnavailableError(
            f"this Spark does not tell its tasks {name}, which exactlyOnce needs: use PySpark"
            " as geolog[spark] installs it, or set exactlyOnce to false"
        )
    return told


def batch_sink(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, run: str
) -> GeologSink:
    """A writer of one batch. InvalidArgumentError, NoSuchStreamError, SealedError.

    run: a name that no other write or query has.
    """
    sink = GeologSink(_checked(given, schema, overwrite=overwrite, is_streaming=False), run)
    sink.check()
    return sink


def stream_sink(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, run: str
) -> GeologStreamSink:
    """A writer of a query's batches. InvalidArgumentError.

    run: a name that no other write or query has.
    """
    options = _checked(given, schema, overwrite=overwrite, is_streaming=True)
    return GeologStreamSink(options, run)


def _checked(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, is_streaming: bool
) -> SinkOptions:
    try:
        if overwrite:
            raise InvalidArgumentError(
                "a stream is only appended to: use .mode('append'), or outputMode('append')"
            )
        check_sink_schema(schema)
        return parse_sink_options(
            given, has_stream_column="stream" in schema.names, is_streaming=is_streaming
        )
    except GeologError as error:
        raise error.with_traceback(None) from None


class _Staging:
    """Stages the rows of a task, each stream's in a ledger of its own."""

    def __init__(
        self, log: Log, stack: AsyncExitStack, sink: str, batch: int, run: str
    ) -> None:
        self._log = log
        self._stack = stack
        self._sink = sink
        self._batch = batch
        self._run = run
        self._writers: dict[str, StagingWriter] = {}

    async def add(self, row: SinkRow) -> None:
        writer = self._writers.get(row.stream)
        if writer is None:
            _check_count(len(self._writers))
            writer = self._writers[row.stream] = await self._stack.enter_async_context(
                open_staging_writer(
                    self._log.access,
                    await _writable(self._log, row.stream),
                    self._sink,
                    batch=self._batch,
                    run=self._run,
                    config=PartitionConfig(),
                )
            )
        writer.rows.add(row.value, row.key, row.headers)
        await writer.send_full()

    async def finish(self) -> tuple[StagedPart, ...]:
        return tuple([await writer.seal() for writer in self._writers.values()])


class _Appending:
    """Appends the rows of a task directly."""

    def __init__(self, log: Log, stack: AsyncExitStack) -> None:
        self._log = log
        self._stack = stack
        self._writers: dict[str, Writer] = {}

    async def add(self, row: SinkRow) -> None:
        writer = self._writers.get(row.stream)
        if writer is None:
            _check_count(len(self._writers))
            await _writable(self._log, row.stream)
            writer = self._writers[row.stream] = await self._stack.enter_async_context(
                self._log.open_writer(row.stream)
            )
        try:
            await writer.post(row.value, key=row.key, headers=row.headers)
        except FencedError as error:
            raise _fenced(row.stream) from error

    async def finish(self) -> tuple[StagedPart, ...]:
        for stream, writer in self._writers.items():
            try:
                await writer.flush()
            except FencedError as error:
                raise _fenced(stream) from error
        return ()


def _fenced(stream: str) -> FencedError:
    return FencedError(
        f"another task or writer took {stream}: with exactlyOnce=false, tasks append side by"
        " side only through write proxies. Start some, or .coalesce(1) the rows, or leave"
        " exactlyOnce on"
    )


def _check_count(count: int) -> None:
    if count >= STREAMS_PER_TASK_MAX:
        raise InvalidArgumentError(
            f"a task has rows for more than {STREAMS_PER_TASK_MAX} streams: repartition the"
            " rows by `stream` first, with more partitions"
        )


async def _writable(log: Log, name: str) -> StreamRecord:
    """The stream, if it takes records. NoSuchStreamError, SealedError."""
    catalog = StreamCatalog(log.access.metadata, log.access.paths)
    return await catalog.read_writable(StreamName.parse(name))


def _run(act: Callable[[], Awaitable[None]]) -> None:
    """Do it on the driver; an error comes without the way through this code."""
    try:
        trio.run(act)
    except GeologError as error:
        raise error.with_traceback(None) from None
