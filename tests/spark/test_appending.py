"""Writes of a real Spark session: each row once, whatever it repeats, errors on the driver.

What sinks decide is tested without Spark, in `tests/pure`.
"""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from geolog.cli.exits import Exit
from geolog.client.writing.partitioner import partition_of_key
from geolog.spark.sink import GeologSink, batch_sink
from tests.spark.demo_stream import connected
from tests.static.checkout import ROOT
from tests.system.demo_process import GEOLOG, plain_environment
from topology.errors import InvalidArgumentError

PAGE = (ROOT / "docs" / "SPARK_WRITES.md").read_text(encoding="utf-8")
SCHEMA = "key string, value string, headers map<string,binary>"


def make_stream(zookeeper: str, stream: str, *, partitions: int = 1) -> str:
    with connected(zookeeper) as log:
        log.create_stream(
            stream, ensemble_size=2, write_quorum=2, ack_quorum=2, partitions=partitions
        )
    return stream


def write(frame: DataFrame, zookeeper: str, **options: str) -> None:
    writer = frame.write.format("geolog").mode("append").option("zookeeper", zookeeper)
    writer.option("cluster", "demo").options(**options).save()


def values_of(zookeeper: str, stream: str) -> list[str]:
    with connected(zookeeper) as log, log.open_reader(stream) as reader:
        return [record.value.decode() for record in reader]


def test_a_batch_write_appends_each_row_with_its_key_and_headers(
    spark: SparkSession, zookeeper: str
) -> None:
    stream = make_stream(zookeeper, "sink/batch", partitions=2)
    rows = [(f"key {n}", f"value {n}", {"n": b"%d" % n} if n % 2 else None) for n in range(100)]
    write(
        spark.createDataFrame(rows, SCHEMA).repartition(3),
        zookeeper,
        stream=stream,
        writer="batch",
    )

    with connected(zookeeper) as log, log.open_reader(stream) as reader:
        records = list(reader)
    found = {
        (str(one.key, "utf-8"), one.value.decode(), one.headers.get("n"))
        for one in records
        if one.key is not None
    }
    assert found == {(key, value, (headers or {}).get("n")) for key, value, headers in rows}
    assert len(records) == len(rows)
    assert all(one.partition == partition_of_key(one.key or b"", 2) for one in records)

    with pytest.raises(PySparkException, match="has written its 100 records already"):
        write(spark.createDataFrame(rows, SCHEMA), zookeeper, stream=stream, writer="batch")
    assert len(values_of(zookeeper, stream)) == len(rows)


@pytest.mark.long
def test_a_query_that_repeats_its_last_batch_writes_each_row_once(
    spark: SparkSession, zookeeper: str, tmp_path: Path
) -> None:
    stream = make_stream(zookeeper, "sink/stream")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run(*texts: str) -> None:
        for text in texts:
            (source / text).write_text(f"{text}\n")
        query = (
            spark.readStream.text(str(source))
            .writeStream.format("geolog")
            .options(zookeeper=zookeeper, cluster="demo", stream=stream)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run("first")
    commits = checkpoint / "commits"
    (commits / "0").unlink()  # The driver was killed before Spark noted the batch.
    (commits / ".0.crc").unlink()
    run("second")

    assert values_of(zookeeper, stream) == ["first", "second"]


def test_repeated_and_speculative_tasks_count_once(zookeeper: str) -> None:
    """Spark calls `write` for each attempt, and gives `commit` one message for each task."""
    stream = make_stream(zookeeper, "sink/tasks")
    sink = sink_of(zookeeper, stream)

    def attempt(*values: str) -> WriterCommitMessage:
        rows = pa.record_batch({"value": list(values)})
        return sink.write(iter([rows]))

    def failing() -> Iterable[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a"]})
        raise OSError("the executor is lost")

    with pytest.raises(OSError, match="executor"):
        sink.write(iter(failing()))
    first, _speculative, second = attempt("a"), attempt("a"), attempt("b")
    sink.commit([first, second])

    assert values_of(zookeeper, stream) == ["a", "b"]


def sink_of(zookeeper: str, stream: str, **more: str) -> GeologSink:
    options = {"zookeeper": zookeeper, "cluster": "demo", "stream": stream}
    options |= more or {"writer": stream}
    schema = StructType([StructField("value", StringType())])
    return batch_sink(options, schema, overwrite=False, run="run")


def test_bad_writes_are_told_on_the_driver(spark: SparkSession, zookeeper: str) -> None:
    stream = make_stream(zookeeper, "sink/refused")
    sealed = make_stream(zookeeper, "sink/sealed")
    with connected(zookeeper) as log:
        log.seal_stream(sealed)
    refusals = [
        ("'' AS value", sealed, "sink/sealed is sealed"),
        ("CAST(NULL AS STRING) AS value", stream, "null value"),
    ]
    for columns, name, message in refusals:
        with pytest.raises(PySparkException, match=message):
            write(spark.sql(f"SELECT {columns}"), zookeeper, stream=name, writer="w")
    assert values_of(zookeeper, stream) == []


def test_text_that_is_not_utf_8_arrives_as_its_bytes(
    spark: SparkSession, zookeeper: str
) -> None:
    """Spark's cast of bytes to text keeps them."""
    stream = make_stream(zookeeper, "sink/bytes")
    frame = spark.sql("SELECT CAST(X'FF00' AS STRING) AS value, CAST(X'FE' AS STRING) AS key")
    write(frame, zookeeper, stream=stream, writer="bytes")

    with connected(zookeeper) as log, log.open_reader(stream) as reader:
        assert [(one.key, one.value) for one in reader] == [(b"\xfe", b"\xff\x00")]


def test_a_write_away_from_the_home_is_refused_before_any_task_runs(zookeeper: str) -> None:
    stream = "sink/regional"
    with connected(zookeeper) as log:
        log.create_stream(
            stream, mode="regional", home="b", ensemble_size=1, write_quorum=1, ack_quorum=1
        )
    with pytest.raises(InvalidArgumentError, match="can be owned in its home b alone"):
        sink_of(zookeeper, stream, writer="w", region="a")
    sink_of(zookeeper, stream, writer="w", region="b")
    sink_of(zookeeper, stream, exactlyOnce="false", region="a")


@pytest.mark.long
def test_the_command_lists_and_deletes_sinks(zookeeper: str) -> None:
    stream = make_stream(zookeeper, "sink/listed")
    sink = sink_of(zookeeper, stream, writer="listed")
    sink.commit([sink.write(iter([pa.record_batch({"value": ["a", "b"]})]))])

    def run(*argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*GEOLOG, "sink", *argv, "--zookeeper", zookeeper, "--cluster", "demo"],
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    listed = [json.loads(line) for line in run("ls", "-o", "jsonl").stdout.splitlines()]
    [found] = [one for one in listed if one["sink"] == "listed"]
    assert (found["kind"], found["records"], found["streams"]) == ("batch write", 2, [stream])
    assert "listed" in run("ls").stdout
    assert run("delete", "listed", "--yes").returncode == Exit.DONE
    assert run("delete", "listed", "--yes").returncode == Exit.NOT_FOUND


def test_at_least_once_appends_directly(zookeeper: str) -> None:
    stream = make_stream(zookeeper, "sink/direct")
    sink = sink_of(zookeeper, stream, exactlyOnce="false")
    sink.commit([sink.write(iter([pa.record_batch({"value": ["a", "b"]})]))])

    assert values_of(zookeeper, stream) == ["a", "b"]


def test_the_program_of_the_page_writes(spark: SparkSession, zookeeper: str) -> None:
    make_stream(zookeeper, "shop/paid")
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    exec(program.replace("127.0.0.1:2181", zookeeper), {"spark": spark})

    assert values_of(zookeeper, "shop/paid") == ["9.90", "12.50"]
