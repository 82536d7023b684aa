"""A query with Spark, as a program of its own: flights and delays of each airline.

It has a process of its own because Spark brings Java, and Python processes that it forks. The
argument is JSON: where the stream is. Spark and its workers start at once, with a query of a
few records; the real one begins with a line on stdin. The answer is one line of JSON: its time,
and rows of airline, region that served, flights, sum of delays, flights with a delay, bytes.
"""

import json
import os
import sys
import time

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's pages have it.

from geolog.spark import GeologDataSource, spark_environment

CORES = 2
WARM_UP_RECORDS = 1000


def main(given: dict[str, str]) -> None:
    """Start Spark, wait for a line, answer."""
    os.environ.update(spark_environment())
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("geolog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.warehouse.dir", given["directory"])
        .config("spark.local.dir", given["directory"])
        .getOrCreate()
    )
    spark.dataSource.register(GeologDataSource)
    query(spark, given, endingPosition=f"sequence:{WARM_UP_RECORDS}")
    if sys.stdin.readline():
        started_s = time.monotonic()  # noqa: TID251 - a program without trio.
        rows = query(spark, given)
        took_s = time.monotonic() - started_s  # noqa: TID251
        answer = {"rows": [list(row) for row in rows], "took_s": took_s}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    spark.stop()


def query(spark: SparkSession, given: dict[str, str], **options: str) -> list[Row]:
    """Count flights, delays and bytes of each airline and serving region."""
    source = spark.read.format("geolog").options(
        zookeeper=given["zookeeper"],
        cluster=given["cluster"],
        includeServing="true",
        minPartitions=str(CORES),
        **options,
    )
    if given["gateway"]:
        source = source.option("gateway", given["gateway"])
    frame = source.schema("value binary, served_region string").load(given["stream"])
    flight = F.from_json(F.col("value").cast("string"), "carrier string, dep_delay double")
    return (
        frame.select(
            flight.alias("flight"), "served_region", F.length("value").alias("size_bytes")
        )
        .groupBy("flight.carrier", "served_region")
        .agg(
            F.count("*"),
            F.sum("flight.dep_delay"),
            F.count("flight.dep_delay"),
            F.sum("size_bytes"),
        )
        .collect()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
