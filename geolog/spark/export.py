"""The job `export`: a stream into files of Parquet, by day and hour of the append.

It is a streaming query that ends when it has read what there was at its start, so its
checkpoint says where the next run goes on. `geolog.spark.export_target` has the files.
"""

import random
import time
from collections.abc import Callable

import attrs
import trio
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from geolog.spark.connecting import look_for_streams
from geolog.spark.data_source import GeologDataSource
from geolog.spark.export_target import (
    CHECKPOINT,
    ExportedBatch,
    ExportIdentity,
    ExportTarget,
)
from geolog.spark.job_errors import spark_errors
from geolog.spark.job_files import JobFiles
from geolog.spark.stream_reading import GO_ON
from topology.errors import GeologError, NoSuchStreamError, TrimmedError

BATCH_BYTES = 1 << 30

_GO_ON = (
    "To skip these records, give --accept-gaps; to export the stream again, a new directory"
)

_DAY_S = 86_400
_HOUR_S = 3_600


@attrs.frozen(kw_only=True)
class ExportSource:
    """The stream to export, and how it is read."""

    zookeeper: str
    stream: str
    cluster: str = "default"
    gateway: str | None = None
    region: str | None = None
    """Read from this region; None: from the one where a task runs."""
    batch_bytes: int = BATCH_BYTES
    """Bytes of the stream in a batch, about."""
    cursor: str | None = None
    """A cursor that shows how far the export is."""
    accepts_gaps: bool = False
    """Skip records that were trimmed before they were exported, or that diverged."""

    @property
    def options(self) -> dict[str, str]:
        """The options of the source."""
        optional = {
            "gateway": self.gateway,
            "region": self.region,
            "commitCursor": self.cursor,
        }
        return {
            "zookeeper": self.zookeeper,
            "cluster": self.cluster,
            "stream": self.stream,
            "includeHeaders": "true",
            "maxBytesPerTrigger": str(self.batch_bytes),
            "failOnDataLoss": str(not self.accepts_gaps).lower(),
            **{name: value for name, value in optional.items() if value is not None},
        }


@attrs.frozen(kw_only=True)
class ExportReport:
    """What one run has exported."""

    stream: str
    directory: str
    batches: int
    records: int
    files: int
    bytes_written: int
    elapsed_s: float


def export(
    spark: SparkSession,
    source: ExportSource,
    directory: str,
    *,
    rng: random.Random,
    on_batch: Callable[[int, int, int], None] = lambda _batch, _records, _files: None,
) -> ExportReport:
    """Export what the stream has now and this directory has not.

    directory: a path, or a URL of a file system that Spark knows. rng: names what an attempt
    stages. on_batch: called after each batch with its number, records and files.
    NoSuchStreamError; ConflictError if the directory holds something else; TrimmedError if
    records are gone that were not exported; UnavailableError.
    """
    try:
        with spark_errors("the export"):
            return _export(spark, source, directory, rng=rng, on_batch=on_batch)
    except (TrimmedError, NoSuchStreamError) as error:
        # The query names its options, which are not those of the export.
        raise type(error)(str(error).replace(GO_ON, _GO_ON)) from error


def _export(
    spark: SparkSession,
    source: ExportSource,
    directory: str,
    *,
    rng: random.Random,
    on_batch: Callable[[int, int, int], None],
) -> ExportReport:
    started_s = time.monotonic()  # noqa: TID251 - a program without trio.
    trio.run(look_for_streams, source, [source.stream])
    target = ExportTarget(JobFiles(spark, directory))
    target.claim(ExportIdentity(source.cluster, source.stream))
    spark.dataSource.register(GeologDataSource)
    done: list[ExportedBatch] = []
    refused: list[GeologError] = []

    def put(frame: DataFrame, batch: int) -> None:
        try:
            plan = target.plan_of(batch)
            made = target.published(batch, plan)
            if made is None:
                token = f"{rng.getrandbits(32):08x}"
                made = _write(target, frame, batch, plan=plan, token=token)
        except GeologError as error:
            refused.append(error)
            raise
        target.finish(made)
        done.append(made)
        on_batch(batch, made.records, len(made.files))

    query = (
        spark.readStream.format("geolog")
        .options(**source.options)
        .load()
        .writeStream.foreachBatch(put)
        .option("checkpointLocation", target.files.url(CHECKPOINT))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except PySparkException:
        if refused:
            raise refused[0] from None
        raise
    finally:
        query.stop()
    return ExportReport(
        stream=source.stream,
        directory=target.files.url(),
        batches=len(done),
        records=sum(one.records for one in done),
        files=sum(len(one.files) for one in done),
        bytes_written=sum(one.size_bytes for one in done),
        elapsed_s=round(time.monotonic() - started_s, 3),  # noqa: TID251 - as above.
    )


def _write(
    target: ExportTarget, frame: DataFrame, batch: int, *, plan: str, token: str
) -> ExportedBatch:
    """Write the rows of a batch into a staging directory, and publish them."""
    spark = frame.sparkSession  # The query's own, so this setting is of the query alone.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    staging = target.staging(batch, token)
    second = f.unix_seconds("timestamp")  # Of UTC, whatever the time zone of the session is.
    (
        frame.withColumn("day", f.date_from_unix_date(f.floor(second / _DAY_S).cast("int")))
        .withColumn("hour", f.floor(f.pmod(second, f.lit(_DAY_S)) / _HOUR_S).cast("int"))
        .sortWithinPartitions("day", "hour", "partition", "sequence")
        .write.partitionBy("day", "hour")
        .parquet(target.files.url(staging))
    )
    has_rows = any(one.name.endswith(".parquet") for one in target.files.files_below(staging))
    # Reads no rows: Parquet has their number at the end of each file.
    records = spark.read.parquet(target.files.url(staging)).count() if has_rows else 0
    return target.publish(batch, staging, records, plan)
