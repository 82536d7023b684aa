"""A job for a standalone cluster: reads a stream and tells which region served each worker.

It runs as a program of its own, since a process has one Spark. Its argument is JSON. Tasks of
a worker in `held_region` tell that they began, by a file in `directory`, and wait for the file
`go` there. At last it reads with the command `bare_python`, which on the workers' PATH is a
Python without geolog, and keeps the error that the driver was given.
"""

import json
import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from geolog.spark import GeologDataSource

GO_S_MAX = 100.0


def standalone_session(given: dict[str, str], **settings: str) -> SparkSession:
    """A session on both workers, with the source; settings: named without `spark.`."""
    builder = SparkSession.builder.master(given["master"])
    ours = {
        "ui.enabled": "false",
        "driver.bindAddress": "127.0.0.1",
        "driver.host": "127.0.0.1",
        "executor.memory": "512m",
        "cores.max": "2",
        "scheduler.minRegisteredResourcesRatio": "1.0",
        "scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "sql.warehouse.dir": given["directory"],
    }
    for name, value in (ours | settings).items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.dataSource.register(GeologDataSource)
    return spark


def main(given: dict[str, str]) -> None:
    spark = standalone_session(given, **{"task.maxFailures": "1"})  # No task may need a second.
    source = spark.read.format("geolog").options(
        zookeeper=given["zookeeper"], cluster="demo", includeServing="true"
    )
    directory = Path(given["directory"])

    def tally(held: str | None, task: int, rows: Iterable[Row]) -> Iterator[dict[str, object]]:
        worker = os.environ["GEOLOG_REGION"]
        counted: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for number, row in enumerate(rows):
            if number == 0 and worker == held:
                (directory / f"began-{task}").touch()
                until_s = time.monotonic() + GO_S_MAX
                while not (directory / "go").exists():
                    if time.monotonic() > until_s:
                        raise TimeoutError(str(directory / "go"))
                    time.sleep(0.02)
            counts = counted[row["served_region"]]
            counts[0] += 1
            counts[1] += len(row["value"])
            counts[2] += zlib.crc32(row["value"], row["sequence"])
        for served, (count, size, digest) in counted.items():
            yield {
                "worker": worker,
                "served": served,
                "rows": count,
                "bytes": size,
                "digest": digest,
            }

    for name, tasks, held in (("whole", 6, None), ("cut", 2, given["held_region"])):
        frame = source.option("minPartitions", tasks).load(given["stream"])
        rows = frame.rdd.mapPartitionsWithIndex(partial(tally, held)).collect()
        hand_over(directory, name, rows)
    spark.sparkContext.pythonExec = given["bare_python"]
    spark.dataSource.register(GeologDataSource)  # It keeps the Python of its registration.
    try:
        source.load(given["stream"]).count()
    except PySparkException as error:
        hand_over(directory, "bare", [{"error": str(error)}])
    spark.stop()


def hand_over(directory: Path, name: str, rows: object) -> None:
    """Write rows for the test, in one step."""
    written = directory / f"{name}.new"
    written.write_text(json.dumps(rows), encoding="utf-8")
    written.rename(directory / f"{name}.json")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
