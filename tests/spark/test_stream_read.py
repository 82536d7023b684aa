"""Streaming queries of a real cluster by a real Spark session.

A region may have been killed by the tests of batches, so streams have two copies.
"""

from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

import geolog
from geolog.spark import GeologDataSource
from tests.spark.demo_stream import connected
from topology.errors import InvalidArgumentError, NoSuchStreamError

SCHEMA = StructType([StructField("value", BinaryType())])


@attrs.frozen
class Query:
    """A query from streams into files, with the checkpoint of its directory."""

    spark: SparkSession
    zookeeper: str
    directory: Path

    def run(self, **options: object) -> list[int]:
        """Read what there is now. Returns the number of rows of each trigger."""
        reader = self.spark.readStream.format("geolog").option("zookeeper", self.zookeeper)
        for name, value in ({"cluster": "demo"} | options).items():
            reader = reader.option(name, str(value))
        query = (
            reader.load()
            .selectExpr("stream", "partition", "sequence", "cast(value as string) value")
            .writeStream.format("json")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.directory / "rows"))
        )
        query.awaitTermination()
        return [int(one["numInputRows"]) for one in query.recentProgress]

    def rows(self) -> list[tuple[str, int, int, str]]:
        rows = self.spark.read.json(str(self.directory / "rows")).collect()
        return sorted(
            (one["stream"], one["partition"], one["sequence"], one["value"]) for one in rows
        )


@pytest.fixture
def query(spark: SparkSession, zookeeper: str, tmp_path: Path) -> Query:
    return Query(spark, zookeeper, tmp_path)


def append(zookeeper: str, target: str, numbers: Iterable[int]) -> None:
    stream, _, partition = target.partition("#")
    with connected(zookeeper) as log:
        log.create_stream(
            stream,
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=2,
            min_regions=2,
            if_not_exists=True,
        )
        if int(partition or 0):
            log.update_stream(stream, partitions=int(partition) + 1)
        with log.open_writer(f"{stream}#{partition or 0}") as writer:
            for pending in [writer.append_nowait(b"value %d" % number) for number in numbers]:
                pending.wait()


def test_a_query_goes_on_where_it_was_with_partitions_and_streams_that_are_new(
    query: Query, zookeeper: str
) -> None:
    options = {
        "streamsPattern": "web/.*",
        "maxOffsetsPerTrigger": 60,
        "commitCursor": "query",
    }
    append(zookeeper, "web/a", range(100))

    first = query.run(**options)
    append(zookeeper, "web/a", range(100, 110))
    append(zookeeper, "web/a#1", range(20))
    append(zookeeper, "web/b", range(30))
    second = query.run(**options)

    assert [count for count in first if count] == [60, 40]
    assert [count for count in second if count] == [60]
    assert query.rows() == sorted(
        [
            *(("web/a", 0, number, f"value {number}") for number in range(110)),
            *(("web/a", 1, number, f"value {number}") for number in range(20)),
            *(("web/b", 0, number, f"value {number}") for number in range(30)),
        ]
    )
    with connected(zookeeper) as log:
        cursors = [log.describe_cursor(stream, "query") for stream in ("web/a", "web/b")]
    assert [one.lag_records for one in cursors] == [0, 0]
    assert [one.sequence for one in cursors[0].partition_list] == [110, 20]


@pytest.mark.long
def test_records_truncated_before_a_trigger_fail_it_or_are_left_out(
    query: Query, zookeeper: str
) -> None:
    append(zookeeper, "cut/a", range(10))
    query.run(stream="cut/a", maxBytesPerTrigger="1MiB")
    append(zookeeper, "cut/a", range(10, 17))
    with connected(zookeeper) as log:
        log.truncate_stream("cut/a", before=geolog.AtSequence(15))
        log.seal_stream("cut/a")

    with pytest.raises(PySparkException, match="cut/a#0: records 10 to 14 were trimmed"):
        query.run(stream="cut/a")
    by_byte = query.run(stream="cut/a", failOnDataLoss="false", maxBytesPerTrigger=1)

    assert [count for count in by_byte if count] == [1, 1]
    assert [row[2] for row in query.rows()] == [*range(10), 15, 16]


@pytest.mark.parametrize("count_again", [0, 20])
def test_a_stream_deleted_under_a_planned_trigger_fails_its_task_or_is_left_out(
    zookeeper: str, count_again: int
) -> None:
    stream = f"gone/again-{count_again}"
    append(zookeeper, stream, range(10))
    given = {"zookeeper": zookeeper, "cluster": "demo", "stream": stream}
    failing, passing = (
        GeologDataSource(given | {"failOnDataLoss": fails}).streamReader(SCHEMA)
        for fails in ("true", "false")
    )
    start = failing.initialOffset()
    end = failing.latestOffset(start, ReadAllAvailable())
    [task] = failing.partitions(start, end)
    before = list(passing.read(task))
    with connected(zookeeper) as log:
        log.delete_stream(stream)
    if count_again:
        append(zookeeper, stream, range(count_again))

    assert sum(len(one) for one in before) == 10
    assert list(passing.read(task)) == []
    told = f"{stream}#0: the stream was deleted before .* records 0 to 9.*failOnDataLoss"
    with pytest.raises(NoSuchStreamError, match=told):
        list(failing.read(task))


def test_a_stream_with_an_end_is_refused() -> None:
    given = {"zookeeper": "127.0.0.1:2181", "stream": "web/a", "endingPosition": "latest"}
    source = GeologDataSource(given)

    with pytest.raises(InvalidArgumentError, match="a streaming query has no end: leave"):
        source.streamReader(source.schema())


def test_a_checkpoint_of_another_source_is_refused() -> None:
    source = GeologDataSource({"zookeeper": "127.0.0.1:2181", "stream": "web/a"})
    reader = source.streamReader(source.schema())

    for offset in ({"logOffset": 3}, {"web/a#0": {"epoch": 1}}, {"web/a": {"sequence": 1}}):
        with pytest.raises(InvalidArgumentError, match="which the source geolog did not write"):
            reader.partitions({}, offset)
