"""The ceiling of a Spark source in Python: one that yields the same Arrow batches from memory.

It reads nothing, decodes nothing and builds one batch per task, so what remains is Spark's own
cost of a row that comes from a Python worker.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from geolog.spark.arrow_columns import BATCH_BYTES, BATCH_ROWS, arrow_schema
from geolog.spark.fields import FIELDS

COLUMNS = ("segment", "entry", "sequence", "value")
"""The columns that the benchmark reads: three numbers, and the value."""

SCHEMA = ", ".join(f"{name} {FIELDS[name].simpleString()}" for name in COLUMNS)


class CeilingSource(DataSource):
    """The format `ceiling`: `rows` rows with values of `valueBytes`, from `tasks` tasks."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ceiling"

    def schema(self) -> str:
        """The columns of the benchmark."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it has one.
        """A reader of all rows."""
        return _CeilingReader(
            int(self.options["rows"]),
            int(self.options["valueBytes"]),
            int(self.options["tasks"]),
        )


class _CeilingReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int, tasks: int) -> None:
        self._rows = rows
        self._value_bytes = value_bytes
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """One for each task: how many rows it has."""
        cuts = [self._rows * task // self._tasks for task in range(self._tasks + 1)]
        return [InputPartition(cuts[task + 1] - cuts[task]) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same batch again and again."""
        batch_rows = min(BATCH_ROWS, max(1, BATCH_BYTES // self._value_bytes))
        value = pa.scalar(b"v" * self._value_bytes, pa.binary())
        number = pa.repeat(pa.scalar(1, pa.int64()), batch_rows)
        batch = pa.RecordBatch.from_arrays(
            [number, number, number, pa.repeat(value, batch_rows)], schema=arrow_schema(COLUMNS)
        )
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch_rows))
            left -= batch_rows
