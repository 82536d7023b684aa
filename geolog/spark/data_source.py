"""The source `geolog` of PySpark: plans a batch read on the driver, reads it in tasks.

Positions are found once, on the driver, so that every task and every repeated task of one read
returns the same records. A task reads its range through a connection of its own, from the
region where it runs; checksums, hedges and fail-over to other regions are as in every reader.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from geolog import blocking
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.record import Gap
from geolog.client.standing import check_region
from geolog.protocol.read_ranges import SequenceSpan, divide_spans
from geolog.spark.arrow_columns import BatchJoiner
from geolog.spark.options import SourceOptions, parse_options
from geolog.spark.pushed_filters import PushedFilters, pushed_filters
from geolog.spark.surroundings import own_region
from geolog.spark.worker_check import Reduced, checked_on_arrival
from topology.errors import InvalidArgumentError, NoSuchStreamError, TrimmedError
from topology.nearest import nearest

FIELDS = {
    "stream": StringType(),
    "partition": IntegerType(),
    "segment": LongType(),
    "entry": LongType(),
    "slot": IntegerType(),
    "sequence": LongType(),
    "transaction_id": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": MapType(StringType(), BinaryType()),
    "served_region": StringType(),
    "hedged": BooleanType(),
}
_READABLE = ("writable", "readonly")


class GeologDataSource(DataSource):
    """Reads streams of geolog. Register it: `spark.dataSource.register(GeologDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "geolog"

    def __reduce__(self) -> Reduced:
        """Travel to workers, which say so if they lack geolog."""
        return checked_on_arrival(self)

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        options = self._parsed()
        left_out = set() if options.has_value else {"value"}
        left_out |= set() if options.has_headers else {"headers"}
        left_out |= set() if options.has_serving else {"served_region", "hedged"}
        return StructType(
            [StructField(name, kind) for name, kind in FIELDS.items() if name not in left_out]
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of some or all columns."""
        check_schema(schema)
        options = self._parsed()
        kind = FilteringReader if options.is_pushing_down else GeologReader
        return kind(options, schema.names)

    def _parsed(self) -> SourceOptions:
        return parse_options(self.options, now_us=_now_us)


def check_schema(schema: StructType) -> None:
    """InvalidArgumentError unless each column is one of ours, with its type."""
    for field in schema.fields:
        ours = FIELDS.get(field.name)
        if ours is None:
            raise InvalidArgumentError(
                f"the schema has a column {field.name!r}: did you mean"
                f" {nearest(field.name, FIELDS)!r}? (columns: {', '.join(FIELDS)})"
            )
        if field.dataType != ours:
            raise InvalidArgumentError(
                f"the schema has column {field.name} as {field.dataType.simpleString()}; it is"
                f" {ours.simpleString()}"
            )


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
        return trio.run(self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        if not isinstance(partition, ReadTask):
            return  # There are no records, and Spark starts a task all the same.
        span = partition.span
        joiner = BatchJoiner(self._columns, self._pushed.keys)
        with self._connected(self._region_to_read()) as log:
            self._check_life(log, partition)
            with log.open_reader(
                f"{span.stream}#{span.partition}",
                start=AtSequence(span.first),
                stop=AtSequence(span.end),
            ) as reader:
                for run in reader.runs():
                    if isinstance(run, Gap):
                        self._on_gap(run)
                    elif run.timestamp_us in self._pushed.timestamp_us:
                        yield from joiner.add(run)
        yield from joiner.rest()

    def _connected(self, region: str | None) -> blocking.Opening[blocking.Log, Log]:
        return blocking.connect(
            zookeeper=self._options.zookeeper,
            cluster=self._options.cluster,
            region=region,
            gateway=self._options.gateway,
            hedge=self._options.hedge,
        )

    def _region_to_read(self) -> str | None:
        """The region of this machine, or the first of those asked for that has a live node."""
        regions = self._options.regions
        if not regions:
            return own_region(os.environ)
        if len(regions) == 1:
            return regions[0]
        with self._connected(regions[0]) as log:
            alive = {node.region for node in log.list_nodes() if node.state in _READABLE}
        return next((region for region in regions if region in alive), regions[0])

    async def _plan(self) -> list[InputPartition]:
        options = self._options
        async with connect(
            zookeeper=options.zookeeper,
            cluster=options.cluster,
            region=options.regions[0] if options.regions else own_region(os.environ),
            gateway=options.gateway,
        ) as log:
            for region in options.regions[1:]:  # `connect` checks the first one.
                await check_region(log, region)
            spans: list[SequenceSpan] = []
            created_us: dict[str, int] = {}
            for name in await self._stream_names(log):
                created, found = await log.spans_between(
                    name, start=options.start, stop=options.stop
                )
                spans += found
                created_us |= {span.stream: created for span in found}
        return [
            ReadTask(span, created_us[span.stream])
            for span in divide_spans(self._pushed.narrowed_spans(spans), options.ranges_min)
        ]

    async def _stream_names(self, log: Log) -> list[str]:
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
                hint = f": did you mean {nearest(stream, known)!r}?" if known else ""
                raise NoSuchStreamError(f"there is no stream {stream!r}{hint}")
        return list(self._options.streams)

    def _check_life(self, log: blocking.Log, task: ReadTask) -> None:
        name = task.span.stream
        if log.describe_stream(name).created_us != task.created_us:
            raise NoSuchStreamError(
                f"{name} was deleted and created again while it was read: start the read again"
            )

    def _on_gap(self, gap: Gap) -> None:
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


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.
