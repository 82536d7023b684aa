"""geolog for PySpark: a batch source that reads from the region where each task runs."""

from geolog.spark.data_source import GeologDataSource
from geolog.spark.surroundings import spark_environment

__all__ = ["GeologDataSource", "spark_environment"]
