"""A job whose worker runs another Python: its PATH finds another command of that name.

It prints the error that the driver was given. Its argument is JSON.
"""

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from geolog.spark import GeologDataSource


def main(given: dict[str, str]) -> None:
    os.environ["PYSPARK_PYTHON"] = given["python"]
    spark = (
        SparkSession.builder.master("local-cluster[1,1,512]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "1")
        .config("spark.executorEnv.PATH", given["worker_path"])
        .config("spark.sql.warehouse.dir", given["directory"])
        .getOrCreate()
    )
    spark.dataSource.register(GeologDataSource)
    frame = spark.read.format("geolog").options(zookeeper=given["zookeeper"], cluster="demo")
    try:
        frame.load(given["stream"]).count()
    except PySparkException as error:
        sys.stdout.write(json.dumps(str(error)) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
