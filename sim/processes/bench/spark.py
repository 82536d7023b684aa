"""Measures batch reads by Spark against the ceiling of any Spark source in Python.

All ways read as many rows of the same columns, in turns, and each figure is the median of its
turns: other work on the machine meets all of them alike. The floor of geolog's rate is
1/(1/ceiling + 1/read): each record is first read, and then handed to Spark.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's pages have it.

from geolog.client.log import Log
from geolog.client.writing.pipeline import Pipeline
from geolog.spark import GeologDataSource, spark_environment
from geolog.spark.job_errors import spark_errors
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.site import Site
from sim.processes.bench.spark_ceiling import SCHEMA, CeilingSource
from topology.errors import DataLostError

_IN_FLIGHT_BYTES = 8 << 20
_GOAL = 0.8
_CORES = 2
_GROWTH = 10
"""How many times more records the second read of the measured memory has."""


@attrs.frozen(kw_only=True)
class SparkLoad:
    """Data to write and then read."""

    record_sizes: Sequence[int]
    size_bytes: int
    """Total size of the values of one stream."""
    tasks_counts: Sequence[int]
    turns: int


@attrs.frozen(kw_only=True)
class _Case:
    """One stream, read by so many tasks."""

    site: Site
    stream: str
    record_bytes: int
    rows: int
    parquet: Path

    def frame(self, spark: SparkSession, tasks: int, **options: str) -> DataFrame:
        """The stream as geolog's source has it."""
        reader = spark.read.format("geolog").schema(SCHEMA).option("minPartitions", tasks)
        reader = reader.option("zookeeper", self.site.zookeeper)
        reader = reader.option("cluster", self.site.cluster)
        if self.site.region:
            reader = reader.option("region", self.site.region)
        if self.site.gateway:
            reader = reader.option("gateway", str(self.site.gateway))
        return reader.options(**options).load(self.stream)


async def measure_spark(
    site: Site,
    load: SparkLoad,
    *,
    payloads_of: Callable[[int], Sequence[bytes]],
    tell: Callable[[str], None],
) -> list[Figure]:
    """Write a stream of each size of records, and read it in all ways."""
    tell("starting Spark")
    figures: list[Figure] = []
    directory = site.directory / "spark"
    with spark_errors("the benchmark"), _session(directory) as spark:
        for stream, record_bytes in zip(site.streams, load.record_sizes, strict=True):
            rows = max(_GROWTH, load.size_bytes // record_bytes)
            tell(f"writing {rows:,} records of {record_bytes:,} bytes")
            await _write(site.log, stream, payloads_of(record_bytes), rows)
            case = _Case(
                site=site,
                stream=stream,
                record_bytes=record_bytes,
                rows=rows,
                parquet=directory / f"{record_bytes}.parquet",
            )
            await trio.to_thread.run_sync(_write_parquet, spark, case)
            for tasks in load.tasks_counts:
                tell(f"reading them with {tasks} tasks")
                figures += await _rates(spark, case, tasks, load.turns)
            tell("measuring the memory of a task")
            figures += await trio.to_thread.run_sync(_memory, spark, case)
    return figures


@contextmanager
def _session(directory: Path) -> Iterator[SparkSession]:
    os.environ.update(spark_environment())
    session = (
        SparkSession.builder.master(f"local[{_CORES}]")
        .appName("geolog bench spark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "scratch"))
        .getOrCreate()
    )
    try:
        session.dataSource.register(GeologDataSource)
        session.dataSource.register(CeilingSource)
        yield session
    finally:
        session.stop()


async def _write(log: Log, stream: str, payloads: Sequence[bytes], rows: int) -> None:
    async with log.open_writer(stream, in_flight_bytes=_IN_FLIGHT_BYTES) as writer:
        pipeline = Pipeline(writer)

        async def push() -> None:
            for number in range(rows):
                await pipeline.push(payloads[number % len(payloads)])
            pipeline.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(push)
            while await pipeline.next_answers():
                pass


def _write_parquet(spark: SparkSession, case: _Case) -> None:
    frame = case.frame(spark, max(2, _CORES))
    frame.write.mode("overwrite").parquet(str(case.parquet))


async def _rates(spark: SparkSession, case: _Case, tasks: int, turns: int) -> list[Figure]:
    ceiling = (
        spark.read.format("ceiling")
        .options(rows=case.rows, valueBytes=case.record_bytes, tasks=tasks)
        .load()
    )
    stored = spark.read.schema(SCHEMA).parquet(str(case.parquet)).coalesce(tasks)
    frames = {"ceiling": ceiling, "geolog": case.frame(spark, tasks), "parquet": stored}
    took_s: dict[str, list[float]] = {name: [] for name in (*frames, "read")}
    for turn in range(turns + 1):  # The first turn starts workers and fills caches.
        for name, frame in frames.items():
            started_s = trio.current_time()
            await trio.to_thread.run_sync(_count, frame, case)
            if turn:
                took_s[name].append(trio.current_time() - started_s)
        started_s = trio.current_time()
        await _read(case)
        if turn:
            took_s["read"].append(trio.current_time() - started_s)
    rates = {name: case.rows / statistics.median(all_s) for name, all_s in took_s.items()}
    floor = 1 / (1 / rates["ceiling"] + 1 / rates["read"])
    label = f"{case.record_bytes:,} bytes, {tasks} tasks"
    return [
        figure(f"{label}: geolog", rates["geolog"], "rows/s", floor=floor, goal=f">= {_GOAL}"),
        figure(f"{label}: geolog", rates["geolog"] * case.record_bytes / 1e6, "MB/s"),
        figure(f"{label}: ceiling of a Python source", rates["ceiling"], "rows/s"),
        figure(f"{label}: Parquet on this disk", rates["parquet"], "rows/s"),
        figure(f"{label}: bench read, one process", rates["read"], "rows/s"),
    ]


def _count(frame: DataFrame, case: _Case) -> None:
    """Touch every row and every value."""
    [row] = frame.agg(
        F.count("*").alias("rows"), F.sum("sequence"), F.sum(F.length("value")).alias("size")
    ).collect()
    if (row["rows"], row["size"]) != (case.rows, case.rows * case.record_bytes):
        raise DataLostError(
            f"Spark read {row['rows']:,} of {case.rows:,} rows of {case.stream}, and"
            f" {row['size']:,} bytes of values: compare with `geolog read`"
        )


async def _read(case: _Case) -> None:
    """Read the whole stream in batches, in this process."""
    rows = 0
    async with case.site.log.open_reader(case.stream) as reader:
        async for batch in reader.batches():
            rows += len(batch)
    if rows != case.rows:
        raise DataLostError(f"{case.stream} has {rows:,} of {case.rows:,} records")


def _memory(spark: SparkSession, case: _Case) -> list[Figure]:
    """The highest memory of a worker in one task, and in one with ten times the records."""
    few = case.frame(spark, 1, endingPosition=f"sequence:{case.rows // _GROWTH}")
    few_bytes = _peak_bytes(few)
    many_bytes = _peak_bytes(case.frame(spark, 1))
    label = f"{case.record_bytes:,} bytes: memory of a task of"
    return [
        figure(f"{label} {case.rows // _GROWTH:,} rows", few_bytes / 2**20, "MiB"),
        figure(
            f"{label} {case.rows:,} rows", many_bytes / 2**20, "MiB", floor=few_bytes / 2**20
        ),
    ]


def _peak_bytes(frame: DataFrame) -> int:
    """The highest resident memory of any Python worker while this is read."""
    frame.agg(F.count("value")).collect()  # It starts workers, if none are left.
    for pid in _workers():
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    frame.agg(F.count("value"), F.sum("sequence")).collect()
    return max(_high_water_bytes(pid) for pid in _workers())


def _high_water_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    [kibibytes] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kibibytes) << 10


def _workers() -> list[int]:
    """Spark's Python workers: what its daemons have forked."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += map(int, listed.read_text(encoding="ascii").split())
        if (
            pid != os.getpid()
            and b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ):
            found.append(pid)
    return found
