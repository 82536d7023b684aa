"""A job for a standalone cluster: writes a stream while tasks fail and are run twice.

It runs as a program of its own, since a process has one Spark. Its argument is JSON. The first
attempt at partition 1 fails in its middle, and the one at partition 0 stops there until Spark
kills it, for a second attempt on the other host was quicker. Each attempt leaves a file in
`directory`. In the end the job writes `written.json` there.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from geolog.spark import GeologDataSource
from tests.spark.standalone_job import GO_S_MAX, hand_over

PARTITIONS = 4
ROWS = 500
"""Rows of each partition."""
SLOW, FAILING = 0, 1
"""The partitions whose first attempts get no further than their middle."""


def main(given: dict[str, str]) -> None:
    spark = (
        SparkSession.builder.master(given["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.cores.max", "2")
        .config("spark.speculation", "true")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s")
        .config("spark.sql.warehouse.dir", given["directory"])
        .getOrCreate()
    )
    spark.dataSource.register(GeologDataSource)
    directory = Path(given["directory"])

    def rows(partition: int, _given: Iterable[int]) -> Iterator[tuple[str, str]]:
        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber()
        (directory / f"attempt-{partition}-{attempt}").touch()
        for number in range(ROWS):
            if number == ROWS // 2 and attempt == 0:
                if partition == FAILING:
                    raise OSError("this attempt is to fail")
                if partition == SLOW:
                    time.sleep(GO_S_MAX)
            yield f"{partition}", f"{partition}-{number}"

    source = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
    frame = source.mapPartitionsWithIndex(rows).toDF("key string, value string")
    writing = frame.write.format("geolog").mode("append").option("writer", "repeated")
    writing.options(zookeeper=given["zookeeper"], cluster="demo").save(given["stream"])
    hand_over(directory, "written", [{"rows": PARTITIONS * ROWS}])
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
