"""A streaming query that copies one stream into another, as a program of its own, for a drill.

The argument is JSON: where the streams and the checkpoint are. It prints a line of JSON for
each batch with rows. Lines on stdin: `restart` stops the query and starts it again in this
driver; `finish` lets it copy what there is, and ends. The end of stdin ends it at once.
"""

import json
import os
import select
import sys

import attrs
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from geolog.spark import GeologDataSource
from geolog.spark.job_errors import error_of
from geolog.spark.job_session import open_job_session

CORES = 2
_LOOK_EVERY_S = 0.1


@attrs.frozen(kw_only=True)
class CopyPlace:
    """The streams of a copy, its cursor, and its directories."""

    zookeeper: str
    cluster: str
    source: str
    sink: str
    cursor: str
    checkpoint: str
    directory: str


class StreamCopy:
    """The query, across restarts in this driver."""

    def __init__(self, spark: SparkSession, place: CopyPlace) -> None:
        self._spark = spark
        self._place = place
        self._told = -1
        self.query: StreamingQuery | None = None

    def start(self) -> None:
        """Start the query, or go on from its checkpoint."""
        self.query = self._writer().trigger(processingTime="200 milliseconds").start()

    def stop(self) -> None:
        """Stop it wherever it is."""
        assert self.query is not None
        self.query.stop()

    def finish(self) -> None:
        """Copy what there is, and tell of it."""
        self.stop()
        self.query = self._writer().trigger(availableNow=True).start()
        self.query.awaitTermination()
        self.tell_batches()

    def tell_batches(self) -> None:
        """Print the batches with rows that are done, since the last call."""
        assert self.query is not None
        for progress in self.query.recentProgress:
            if progress["numInputRows"] and progress["batchId"] > self._told:
                self._told = progress["batchId"]
                tell(batch=self._told, rows=progress["numInputRows"])

    def _writer(self) -> DataStreamWriter:
        place = self._place
        read = (
            self._spark.readStream.format("geolog")
            .option("zookeeper", place.zookeeper)
            .option("cluster", place.cluster)
            .option("commitCursor", place.cursor)
            .load(place.source)
        )
        return (
            read.select("key", "value")
            .writeStream.format("geolog")
            .option("zookeeper", place.zookeeper)
            .option("cluster", place.cluster)
            .option("stream", place.sink)
            .option("checkpointLocation", place.checkpoint)
        )


def tell(**said: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def main(place: CopyPlace) -> None:
    """Run the query as told on stdin, until it fails or is finished."""
    os.environ["SPARK_LOCAL_DIRS"] = place.directory
    master = f"local[{CORES}]"
    with open_job_session(os.environ, master=master, name="geolog drill") as spark:
        spark.dataSource.register(GeologDataSource)
        copy = StreamCopy(spark, place)
        try:
            copy.start()
            follow(copy)
        except StreamingQueryException as error:
            tell(failed=str(error_of(error, doing="the query")))
            sys.exit(1)


def follow(copy: StreamCopy) -> None:
    """Tell of batches, and do as the lines say. StreamingQueryException if the query fails."""
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], _LOOK_EVERY_S)
        assert copy.query is not None
        if not copy.query.isActive and (error := copy.query.exception()) is not None:
            raise error
        copy.tell_batches()
        match sys.stdin.readline().strip() if asked else None:
            case None:
                continue
            case "restart":
                copy.stop()
                copy.start()
                tell(restarted=True)
            case "finish":
                copy.finish()
                tell(finished=True)
                return
            case _:
                return


if __name__ == "__main__":
    main(CopyPlace(**json.loads(sys.argv[1])))
