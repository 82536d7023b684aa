"""The job `replay`: a set of files into a stream, each row once, in order for each key.

The rows are sorted, and written by the sink: tasks stage them, and the driver copies what they
staged, in the order of tasks, under a named writer (PROTOCOL S34 to S38).
"""

import re
import time
from collections.abc import Sequence
from hashlib import sha256

import attrs
import trio
from pyspark.sql import SparkSession

from geolog.catalog.sinks import SinkCatalog
from geolog.client.log import Log
from geolog.client.staging.begun_copy import finish_begun_copy
from geolog.protocol.append_failure import in_other_words
from geolog.protocol.sink_copy import SinkRecord
from geolog.spark.connecting import check_streams, connect_here
from geolog.spark.data_source import GeologDataSource
from geolog.spark.job_errors import spark_errors
from geolog.spark.job_files import JobFiles
from geolog.spark.replay_rows import json_rows, parquet_rows
from topology.errors import GeologError, InvalidArgumentError

FORMATS = ("parquet", "jsonl")

_WRITER_LENGTH_MAX = 200
_DIGEST_LENGTH = 32
_OPTION = re.compile(r"\.option\('writer', '?([\w-]+)'?\)")
"""How errors of the sink tell users of Spark to give another name."""


@attrs.frozen(kw_only=True)
class ReplayTarget:
    """The stream to append to."""

    zookeeper: str
    stream: str
    cluster: str = "default"
    gateway: str | None = None
    region: str | None = None
    """The region of driver and tasks; None: the one where each runs."""
    writer: str | None = None
    """The name of this replay, which is done once; None: made from source and stream."""


@attrs.frozen(kw_only=True)
class ReplaySource:
    """The files, and which of their columns are used."""

    files: str
    """A path, or a URL of a file system that Spark knows: a file, or a directory of them."""
    format: str = "parquet"
    value: str = "value"
    key: str | None = None
    order_by: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class ReplayReport:
    """What one run has done."""

    stream: str
    writer: str
    records: int
    is_resumed: bool
    """Whether it only finished the copy that an earlier run had begun."""
    elapsed_s: float


def replay(spark: SparkSession, source: ReplaySource, target: ReplayTarget) -> ReplayReport:
    """Append all rows of the files to the stream, each once.

    ConflictError if the replay of this name is done; InvalidArgumentError for columns of other
    types, or a stream that this machine cannot write; NoSuchStreamError, SealedError,
    NotEnoughNodesError if there is no room to stage the
    rows; UnavailableError. After an error it can be run again.
    """
    try:
        with spark_errors("the replay"):
            return _replay(spark, source, target)
    except GeologError as error:
        raise in_other_words(error, words_of_command(str(error))) from error


def words_of_command(told: str) -> str:
    """The words of an error of the sink with the option of the command, not that of Spark."""
    return _OPTION.sub(r"--writer \1", told).replace("Run the batch again", "Run it again")


def _replay(spark: SparkSession, source: ReplaySource, target: ReplayTarget) -> ReplayReport:
    started_s = time.monotonic()  # noqa: TID251 - a program without trio.
    files = JobFiles(spark, source.files)
    writer = target.writer or _name_of(files.url(), target.stream)
    is_resumed = trio.run(_finish_begun, target, writer, files.url())
    if not is_resumed:
        if not files.is_there(""):
            raise InvalidArgumentError(
                f"{files.url()} does not exist: give the files to replay"
            )
        _write(spark, source, target, writer)
    record = trio.run(_record_of, target, writer)
    return ReplayReport(
        stream=target.stream,
        writer=writer,
        records=record.records_count,
        is_resumed=is_resumed,
        elapsed_s=round(time.monotonic() - started_s, 3),  # noqa: TID251 - as above.
    )


def _write(
    spark: SparkSession, source: ReplaySource, target: ReplayTarget, writer: str
) -> None:
    spark.dataSource.register(GeologDataSource)
    options = {
        "zookeeper": target.zookeeper,
        "cluster": target.cluster,
        "gateway": target.gateway,
        "region": target.region,
        "writer": writer,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if source.format == "jsonl":
        rows = json_rows(spark, source.files)
    else:
        rows = parquet_rows(
            spark, source.files, value=source.value, key=source.key, order_by=source.order_by
        )
    rows.write.format("geolog").mode("append").options(**given).save(target.stream)


async def _finish_begun(target: ReplayTarget, writer: str, files: str) -> bool:
    async with connect_here(target) as log:
        await check_streams(log, [target.stream], takes_partitions=False)
        await log.check_writable(target.stream)
        return await finish_begun_copy(log, writer, source=files, stream=target.stream)


async def _record_of(target: ReplayTarget, writer: str) -> SinkRecord:
    async with connect_here(target) as log:
        return await _found(log, writer)


async def _found(log: Log, writer: str) -> SinkRecord:
    access = log.access
    sinks = SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)
    return (await sinks.ensure(writer)).record


def _name_of(files: str, stream: str) -> str:
    """The same name for the same files and stream, so that a command run twice is refused."""
    name = f"replay of {files} into {stream}"
    if len(name) <= _WRITER_LENGTH_MAX:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _WRITER_LENGTH_MAX - _DIGEST_LENGTH - 1]}-{digest}"
