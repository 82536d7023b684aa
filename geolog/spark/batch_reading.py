"""Reads a batch of records for Spark: plans it on the driver, reads it in tasks.

Positions are found once, on the driver, so that every task and every repeated task of one read
returns the same records. A task reads its range through a connection of its own, from the
region where it runs; checksums, hedges and fail-over to other regions are as in every reader.
"""

import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from geolog import blocking
from geolog.client.connect import connect
from geolog.client.log import Log, LogConfig
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.record import Gap, GapReason
from geolog.client.standing import NoSuchRegionError, check_region
from geolog.ledger.nodes.node_pool import PoolConfig
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.protocol.read_ranges import SequenceSpan, divide_spans
from geolog.spark.arrow_columns import BatchJoiner
from geolog.spark.options import SourceOptions
from geolog.spark.pushed_filters import PushedFilters, pushed_filters
from geolog.spark.surroundings import REGION_FILE, REGION_VARIABLE, own_region
from geolog.spark.worker_check import Reduced, checked_on_arrival
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    TrimmedError,
)
from topology.nearest import suggestion

_READABLE = ("writable", "readonly")


class ReadTask(InputPartition):
    """The range of records that one task reads."""

    def __init__(self, span: SequenceSpan, created_us: int) -> None:
        super().__init__(None)
        self.span = span
        self.created_us = created_us
        """When the stream was created: one made again under its name is another stream."""


class GeologReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = PushedFilters(keys=options.keys)

    def __reduce__(self) -> Reduced:
        """Travel to workers, which say so if they lack geolog."""
        return checked_on_arrival(self)

    def partitions(self) -> list[InputPartition]:
        """Divide the read into tasks."""
        try:
            return trio.run(self._plan)
        except GeologError as error:
            raise told(error, is_region_found=not self._options.regions) from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        try:
            yield from self._read(partition)
        except GeologError as error:
            raise told(error, is_region_found=not self._options.regions) from None

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadTask):
            return  # There are no records, and Spark starts a task all the same.
        span = partition.span
        joiner = BatchJoiner(self._columns, self._pushed.keys)
        region, next_regions = self._regions_to_read()
        with self._connected(region, next_regions) as log:
            try:
                with log.open_reader(
                    f"{span.stream}#{span.partition}",
                    start=AtSequence(span.first, span.home_epoch),
                    stop=AtSequence(span.end, span.home_epoch),
                ) as reader:
                    # The reader stays in the life in which it was opened: so not before that.
                    self._check_life(log, partition)
                    for run in reader.runs():
                        if isinstance(run, Gap):
                            self._on_gap(run)
                        elif run.timestamp_us in self._pushed.timestamp_us:
                            yield from joiner.add(run)
            except InvalidArgumentError:
                self._check_life(log, partition)  # Another life may be shorter than the range.
                raise
        yield from joiner.rest()

    def _connected(
        self, region: str | None, next_regions: Sequence[str] = ()
    ) -> blocking.Opening[blocking.Log, Log]:
        placement = PlacementConfig(next_regions=",".join(next_regions) or None)
        return blocking.connect(
            zookeeper=self._options.zookeeper,
            cluster=self._options.cluster,
            region=region,
            gateway=self._options.gateway,
            hedge=self._options.hedge,
            config=LogConfig(pool=PoolConfig(placement=placement)),
        )

    def _regions_to_read(self) -> tuple[str | None, list[str]]:
        """The region to read from, and those after it; None: the nearest to this machine."""
        regions = self._options.regions
        if not regions:
            return own_region(os.environ), []
        if len(regions) == 1:
            return regions[0], []
        with self._connected(regions[0]) as log:
            alive = {node.region for node in log.list_nodes() if node.state in _READABLE}
        best = next((region for region in regions if region in alive), regions[0])
        return best, [region for region in regions if region != best]

    def open_on_driver(self) -> AbstractAsyncContextManager[Log]:
        """Connect from the driver, to plan."""
        options = self._options
        return connect(
            zookeeper=options.zookeeper,
            cluster=options.cluster,
            region=options.regions[0] if options.regions else own_region(os.environ),
            gateway=options.gateway,
        )

    async def _plan(self) -> list[InputPartition]:
        options = self._options
        async with self.open_on_driver() as log:
            for region in options.regions[1:]:  # `connect` checks the first one.
                await check_region(log, region)
            spans: list[SequenceSpan] = []
            created_us: dict[str, int] = {}
            for name in await self.stream_names(log):
                created, found = await log.spans_between(
                    name, start=options.start, stop=options.stop
                )
                spans += found
                created_us |= {span.stream: created for span in found}
        return [
            ReadTask(span, created_us[span.stream])
            for span in divide_spans(self._pushed.narrowed_spans(spans), options.ranges_min)
        ]

    async def stream_names(self, log: Log) -> list[str]:
        """The streams that the options name, or those that match. NoSuchStreamError."""
        pattern = self._options.streams_pattern
        known = await log.list_streams()
        if pattern is not None:
            names = [name for name in known if re.fullmatch(pattern, name)]
            if not names:
                raise NoSuchStreamError(f"no stream matches streamsPattern={pattern!r}")
            return names
        for name in self._options.streams:
            stream = name.partition("#")[0]
            if stream not in known:
                raise NoSuchStreamError(
                    f"there is no stream {stream!r}{suggestion(stream, known)}"
                )
        return list(self._options.streams)

    def _check_life(self, log: blocking.Log, task: ReadTask) -> None:
        name = task.span.stream
        if log.stream_created_us(name) != task.created_us:
            raise NoSuchStreamError(
                f"{name} was deleted and created again while it was read: start the read again"
            )

    def _on_gap(self, gap: Gap) -> None:
        if gap.reason is GapReason.LOCAL_ONLY:
            return  # Nothing is lost: they are in the region in which they were appended.
        if self._options.is_failing_on_data_loss:
            raise TrimmedError(
                f"{gap.stream}#{gap.partition}: records {gap.from_sequence} to"
                f" {gap.to_sequence - 1} are gone ({gap.reason.value}). Start the read"
                " again, or read the rest with .option('failOnDataLoss', 'false')"
            )


class FilteringReader(GeologReader):
    """A batch read that takes filters of the query; the session must allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's.
        """Take what saves work; Spark tests all filters again."""
        self._pushed = pushed_filters(filters, self._pushed)
        return filters


def told(error: GeologError, *, is_region_found: bool = False) -> GeologError:
    """The error as Spark is to show it: without the way to it through this code.

    is_region_found: the region is that of this machine, so the error has to say whose it is.
    """
    if is_region_found and isinstance(error, NoSuchRegionError):
        return NoSuchRegionError(
            f"{error}. Correct {REGION_VARIABLE} or {REGION_FILE} on {platform.node()}"
        )
    return error.with_traceback(None)
