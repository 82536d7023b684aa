"""Reads a stream of micro-batches for Spark.

The driver asks at each trigger how far the streams reach, and the core plans where the trigger
ends. The offset says where it began, too. So its tasks are planned from the offset alone, and a
trigger that Spark repeats has the same records. Tasks read as those of a batch do.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from geolog.catalog.cursors import CursorHeldError
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import Log
from geolog.client.standing import check_region
from geolog.protocol.ids import Position
from geolog.protocol.read_ranges import SequenceSpan, divide_spans
from geolog.protocol.stream_state import parse_target
from geolog.protocol.trigger_plan import (
    NO_LIMITS,
    LossReason,
    PartitionExtent,
    PartitionKey,
    TriggerLimits,
    TriggerLoss,
    TriggerPlace,
    plan_trigger,
)
from geolog.spark.batch_reading import GeologReader, ReadTask, told
from geolog.spark.options import SourceOptions
from geolog.spark.stream_offsets import Offset, offset_of, places_of
from topology.errors import (
    ConflictError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    TrimmedError,
    UnavailableError,
)

_log = logging.getLogger(__name__)

GO_ON = (
    "To skip these records, set .option('failOnDataLoss', 'false'); to read the stream again,"
    " give a new checkpointLocation"
)
"""The way out after a loss, for a query."""

T = TypeVar("T")

Extents = Mapping[PartitionKey, PartitionExtent]


class GeologStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source, on the driver and in its tasks."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        """InvalidArgumentError for an option of batches."""
        if options.stop is not None:
            raise InvalidArgumentError(
                "a streaming query has no end: leave endingPosition and endingTimestamp out,"
                " or read a batch with spark.read"
            )
        self._options = options
        self._batch = GeologReader(options, columns)
        self._targets: Extents | None = None
        self._latest: Offset | None = None
        self._shown: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's.
        """Where a new query begins."""
        return self._asked(self.find_start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's.
        """The limit of the options; `latestOffset` applies the other one as well."""
        limits = self._options.limits
        if limits.records is not None:
            return ReadMaxRows(limits.records)
        return ReadAllAvailable() if limits.bytes is None else ReadMaxBytes(limits.bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's.
        """Where the next trigger ends; `start` itself if there is nothing to read."""
        return self._asked(lambda log: self.plan(log, start, limit))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's.
        """How far the streams reached when the last trigger was planned."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's.
        """Read no further than the streams reach now."""
        self._targets = self._asked(lambda log: self._extents(log, {}))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a trigger into tasks: those of its offset, whatever the streams are now."""
        try:
            before, places = places_of(start), places_of(end)
        except GeologError as error:
            raise told(error) from None
        spans = [
            SequenceSpan(key[0], key[1], place.first, place.end, place.home_epoch)
            for key, place in places.items()
            if before.get(key) != place
        ]
        return [
            ReadTask(span, places[span.stream, span.partition].created_us)
            for span in divide_spans(spans, self._options.ranges_min)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task.

        Spark plans the trigger again with each start, from its own log. So a stream that is
        deleted meanwhile would stop the query for ever.
        """
        try:
            yield from self._batch.read(partition)
        except NoSuchStreamError as error:
            assert isinstance(partition, ReadTask)
            span = partition.span
            if not self._asked(partial(_is_gone, partition)):
                # The server that this task has asked was behind: Spark repeats the task.
                raise UnavailableError(str(error)) from None
            what = (
                f"{span.stream}#{span.partition}: the stream was deleted before this query had"
                f" read its records {span.first} to {span.end - 1}"
            )
            if self._options.is_failing_on_data_loss:
                raise NoSuchStreamError(f"{what}. {GO_ON}") from None
            _log.warning("%s; the query skips them (%s)", what, error)

    def _asked(self, ask: Callable[[Log], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with self._batch.open_on_driver() as log:
                return await ask(log)

        try:
            return trio.run(connected)
        except GeologError as error:
            raise told(error, is_region_found=not self._options.regions) from None

    async def find_start(self, log: Log) -> Offset:
        """Where a new query begins, asked of this log."""
        for region in self._options.regions[1:]:  # `connect` checks the first one.
            await check_region(log, region)
        places: dict[PartitionKey, TriggerPlace] = {}
        for name in await self._batch.stream_names(log):
            created_us, spans = await log.spans_between(name, start=self._options.start)
            for span in spans:
                places[span.stream, span.partition] = TriggerPlace(
                    created_us=created_us,
                    home_epoch=span.home_epoch,
                    first=span.first,
                    end=span.first,
                )
        return offset_of(places)

    async def plan(self, log: Log, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next trigger ends, asked of this log."""
        places = places_of(start)
        limits = self._limits(limit)
        # Spark asks when the triggers before are done. Its own call `commit` comes later: with
        # the next records, so after the last ones never.
        if self._options.cursor is not None and start != self._shown:
            await self._show(log, self._options.cursor, places)
            self._shown = start
        extents = await self._extents(log, places, bytes_too=limits.bytes is not None)
        plan = plan_trigger(places, extents, limits, self._targets)
        self._tell(plan.losses)
        self._latest = offset_of(
            {
                key: TriggerPlace(
                    created_us=one.created_us,
                    home_epoch=one.position.home_epoch,
                    first=one.end,
                    end=one.end,
                )
                for key, one in extents.items()
            }
        )
        return offset_of(plan.places)

    def _limits(self, limit: ReadLimit) -> TriggerLimits:
        """The limit that Spark gives, with that of the options which it cannot give along."""
        match limit:
            case ReadMaxRows(max_rows=records):
                return TriggerLimits(records=records, bytes=self._options.limits.bytes)
            case ReadMaxBytes(max_bytes=size_bytes):
                return TriggerLimits(bytes=size_bytes)
        return NO_LIMITS

    async def _extents(
        self, log: Log, places: Mapping[PartitionKey, TriggerPlace], *, bytes_too: bool = False
    ) -> Extents:
        """How far the streams reach that are read now; those that were deleted are left out."""
        known: dict[str, dict[int, Position]] = defaultdict(dict)
        for (stream, partition), place in places.items():
            known[stream][partition] = place.position
        extents: dict[PartitionKey, PartitionExtent] = {}
        for name in await self._names_now(log, places):
            stream = name.partition("#")[0]
            try:
                created_us = await log.stream_created_us(stream)
                # A position in another life of the stream says nothing about this one.
                same = {
                    number: position
                    for number, position in known[stream].items()
                    if places[stream, number].created_us == created_us
                }
                found = await log.extents_from(name, same, bytes_too=bytes_too)
            except NoSuchStreamError:
                continue  # It was deleted since it was listed.
            extents |= {(stream, number): one for number, one in found.items()}
        return extents

    async def _names_now(
        self, log: Log, places: Mapping[PartitionKey, TriggerPlace]
    ) -> list[str]:
        try:
            return await self._batch.stream_names(log)
        except NoSuchStreamError:
            if self._options.streams_pattern is None or not places:
                raise
            return []  # All that matched are gone, and the plan tells of each.

    def _tell(self, losses: Sequence[TriggerLoss]) -> None:
        if not losses:
            return
        if self._options.is_failing_on_data_loss:
            raise TrimmedError(
                f"{_words(losses[0])}. {GO_ON}"
                + (f" ({len(losses) - 1} more partitions lost records)" if losses[1:] else "")
            )
        for loss in losses:
            _log.warning("%s; the query skips them (failOnDataLoss=false)", _words(loss))

    async def _show(
        self, log: Log, cursor: str, places: Mapping[PartitionKey, TriggerPlace]
    ) -> None:
        """Move the cursor to where the query is, in streams that are the ones it read."""
        known: dict[str, dict[int, TriggerPlace]] = defaultdict(dict)
        for (stream, partition), place in places.items():
            known[stream][partition] = place
        for stream, read in known.items():
            try:
                created_us = await log.stream_created_us(stream)
                # A position in another life of the stream says nothing about this one.
                committed = {
                    number: place.position
                    for number, place in read.items()
                    if place.created_us == created_us
                }
                if committed:
                    await log.commit_cursor(stream, cursor, committed)
            except CursorHeldError:
                raise
            except (ConflictError, NoSuchStreamError) as error:
                # The checkpoint is what counts; the next commit shows the progress again.
                _log.warning("cursor %r of %s was not moved: %s", cursor, stream, error)


async def _is_gone(task: ReadTask, log: Log) -> bool:
    """Whether the stream that a task was planned for is deleted, for certain."""
    streams = StreamCatalog(log.access.metadata, log.access.paths)
    stream, _ = parse_target(task.span.stream)
    try:
        return (await streams.read_latest(stream)).created_us != task.created_us
    except NoSuchStreamError:
        return True


def _words(loss: TriggerLoss) -> str:
    what = f"{loss.stream}#{loss.partition}"
    match loss.reason:
        case LossReason.TRIMMED:
            return (
                f"{what}: records {loss.from_sequence} to {loss.to_sequence - 1} were trimmed"
                " before this query read them"
            )
        case LossReason.DIVERGED:
            return (
                f"{what}: records {loss.from_sequence} to {loss.to_sequence - 1}, which this"
                " query read, are not in the stream (diverged): its home was failed over, and"
                " the new home has used their sequences again"
            )
        case LossReason.CREATED_AGAIN:
            return f"{what}: the stream was deleted and created again since this query read it"
        case LossReason.GONE:
            return f"{what}: this query read it; it was deleted, or no option names it any more"
