"""geolog for PySpark: reads batches and streaming queries from the region of each task."""

from geolog.spark.data_source import GeologDataSource
from geolog.spark.surroundings import spark_environment

__all__ = ["GeologDataSource", "spark_environment"]
