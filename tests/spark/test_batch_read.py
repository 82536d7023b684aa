"""Batch reads of a real cluster by a real Spark session: rows, regions, gaps and errors."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

import attrs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession

import geolog
from geolog import blocking
from tests.system.demo_process import DemoProcess

RECORDS = 500


def connected(zookeeper: str) -> AbstractContextManager[blocking.Log]:
    return blocking.connect(zookeeper=zookeeper, cluster="demo", region="a")


def write(zookeeper: str, stream: str, *, partitions: int = 1, count: int = RECORDS) -> None:
    """Write records of every form, in many small batches and over several segments."""
    with connected(zookeeper) as log:
        log.create_stream(
            stream,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            min_regions=2,
            partitions=partitions,
            if_not_exists=True,
        )
        with log.open_writer(stream, batch_bytes=4096) as writer:
            pending = [
                writer.append_nowait(
                    b"value %d" % number,
                    key=None if number % 3 == 0 else b"key %d" % number,
                    headers={"a": b"%d" % number, "ü": b""} if number % 5 == 0 else None,
                )
                for number in range(count)
            ]
            for one in pending:
                one.wait()


def records_of(zookeeper: str, target: str, **bounds: geolog.Bound) -> list[geolog.Record]:
    with connected(zookeeper) as log, log.open_reader(target, **bounds) as reader:
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


@pytest.fixture(scope="session")
def orders(zookeeper: str) -> str:
    write(zookeeper, "shop/orders", partitions=2)
    return "shop/orders"


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row["partition"], row["sequence"]))


def places_of(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row["partition"], row["sequence"]) for row in rows]


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


def test_every_byte_is_served_by_the_region_of_the_worker(source: Source, orders: str) -> None:
    frame = source.load(orders, includeServing=True, hedge="off")

    assert frame.groupBy("served_region").count().collect() == [Row("b", RECORDS)]


def test_a_region_that_is_named_serves_instead(source: Source, orders: str) -> None:
    frame = source.load(orders, includeServing=True, hedge="off", region="c,a")

    assert frame.groupBy("served_region").count().collect() == [Row("c", RECORDS)]


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


def test_a_schema_of_few_columns_is_read_alone(source: Source, orders: str) -> None:
    frame = source.options().schema("value binary, sequence bigint").load(orders)

    assert frame.columns == ["value", "sequence"]
    assert frame.where("value is null").count() == 0


def test_a_stream_is_read_from_sql(source: Source, orders: str) -> None:
    source.spark.sql(
        f"CREATE OR REPLACE TEMP VIEW orders USING geolog OPTIONS (zookeeper"
        f" '{source.zookeeper}', cluster 'demo', streamsPattern 'shop/ord.*')"
    )

    [row] = source.spark.sql("SELECT count(*) AS n, count(key) AS keys FROM orders").collect()

    assert row == Row(RECORDS, RECORDS - (RECORDS + 2) // 3)


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


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        ("shop/order", {}, "no stream 'shop/order': did you mean 'shop/orders'"),
        ("shop/orders", {"region": "bb"}, "region='bb' has no storage nodes"),
        ("shop/orders", {"minPartition": 3}, "did you mean 'minPartitions'"),
        ("shop/orders", {"minPartitions": 0}, "minPartitions='0' must be a whole number"),
        ("shop/orders#0", {"startingPosition": "sequence:9999"}, "9999 is beyond the end"),
        ("shop/orders#0", {"endingPosition": "sequence:9999"}, "9999 is beyond the end"),
        ("shop/orders", {"startingPosition": "soon"}, "'soon' is not a position"),
        ("shop/orders", {"failOnDataLoss": "no"}, "failOnDataLoss='no' must be true or false"),
        ("shop/orders", {"streams": "shop/a"}, "give one of stream, streams and"),
    ],
)
def test_bad_input_is_refused_on_the_driver(
    source: Source, orders: str, stream: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        source.load(stream, **options).collect()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("valeu binary", "column 'valeu': did you mean 'value'"),
        ("value string", "column value as string; it is binary"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    source: Source, orders: str, schema: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        source.options().schema(schema).load(orders).collect()


def test_a_region_that_is_killed_leaves_every_row(
    source: Source, orders: str, demo: DemoProcess
) -> None:
    before = rows_of(source.load(orders))
    match demo.ready:
        case {"regions": {"b": {"storage": [{"pid": int(pid)}]}}}:
            import os, signal
            os.kill(pid, signal.SIGKILL)

    frame = source.load(orders, includeServing=True)

    assert places_of(rows_of(frame)) == places_of(before)
    assert {row["served_region"] for row in frame.collect()} <= {"a", "c"}
