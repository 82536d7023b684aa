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

from tests.spark.standalone_job import GO_S_MAX, hand_over, standalone_session

PARTITIONS = 4
ROWS = 500
"""Rows of each partition."""
SLOW, FAILING = 0, 1
"""The partitions whose first attempts get no further than their middle."""


def main(given: dict[str, str]) -> None:
    settings = {
        "speculation": "true",
        "speculation.quantile": "0.5",
        "sql.execution.arrow.maxRecordsPerBatch": "50",
    }
    spark = standalone_session(given, **settings)
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
