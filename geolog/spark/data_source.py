"""The source `geolog` of PySpark: what a query of Spark gets for its options."""

import secrets  # noqa: TID251 - where the names of runs are born.
import time

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from geolog.spark.batch_reading import FilteringReader, GeologReader, told
from geolog.spark.fields import FIELDS, check_schema
from geolog.spark.options import SourceOptions, parse_options
from geolog.spark.sink import batch_sink, stream_sink
from geolog.spark.stream_reading import GeologStreamReader
from geolog.spark.worker_check import Reduced, checked_on_arrival
from topology.errors import GeologError


class GeologDataSource(DataSource):
    """Reads streams of geolog. Register it: `spark.dataSource.register(GeologDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "geolog"

    def __reduce__(self) -> Reduced:
        """Travel to workers, which say so if they lack geolog."""
        return checked_on_arrival(self)

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        options = self._parsed()
        left_out = set() if options.has_value else {"value"}
        left_out |= set() if options.has_headers else {"headers"}
        left_out |= set() if options.has_serving else {"served_region", "hedged"}
        return StructType(
            [StructField(name, kind) for name, kind in FIELDS.items() if name not in left_out]
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of some or all columns."""
        try:
            check_schema(schema)
        except GeologError as error:
            raise told(error) from None
        options = self._parsed()
        kind = FilteringReader if options.is_pushing_down else GeologReader
        return kind(options, schema.names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's.
        """A reader of a streaming query."""
        try:
            check_schema(schema)
            options = self._parsed()
            return GeologStreamReader(options, schema.names)
        except GeologError as error:
            raise told(error) from None

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's.
        """A writer of one batch, to a stream that takes it."""
        return batch_sink(self.options, schema, overwrite=overwrite, run=_new_run())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's.
        """A writer of the batches of a streaming query."""
        return stream_sink(self.options, schema, overwrite=overwrite, run=_new_run())

    def _parsed(self) -> SourceOptions:
        try:
            return parse_options(self.options, now_us=_now_us)
        except GeologError as error:
            raise told(error) from None


def _new_run() -> str:
    return secrets.token_hex(8)


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.
