"""The Spark session of a job that a command runs."""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from geolog.spark.surroundings import spark_environment

_QUIET = Path(__file__).with_name("job_log4j2.properties")
"""Settings of Spark's log: without any, it begins each job with lines about itself."""


@contextmanager
def open_job_session(
    environ: MutableMapping[str, str], *, master: str, name: str
) -> Iterator[SparkSession]:
    """A session for the length of the block. UnavailableError if there is no Java.

    environ: that of this process, which Spark reads; the variables it needs are set there.
    """
    # It tells each error of a job with its traceback, and the command tells it in one line.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    environ.update(spark_environment(environ=environ))
    builder = SparkSession.builder.appName(name).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if not {"SPARK_CONF_DIR", "SPARK_HOME"} & environ.keys():  # Where the user's settings are.
        quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
        builder = builder.config("spark.driver.extraJavaOptions", quiet)
    if master.startswith("local"):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = builder.master(master).getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()
