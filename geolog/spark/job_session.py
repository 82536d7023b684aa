"""The Spark session of a job that a command runs."""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from geolog.spark.job_errors import spark_errors
from geolog.spark.surroundings import spark_environment

_QUIET = Path(__file__).with_name("job_log4j2.properties")
"""Settings of Spark's log: without any, it begins each job with lines about itself."""


@contextmanager
def open_job_session(
    environ: MutableMapping[str, str], *, master: str, name: str
) -> Iterator[SparkSession]:
    """A session for the length of the block. UnavailableError if Spark does not start.

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
    with spark_errors("the start of Spark"):
        spark = builder.master(master).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        with suppress(Py4JError, ConnectionError):  # Its Java has ended, and the job says so.
            spark.stop()
