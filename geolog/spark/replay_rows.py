"""The rows of a set of files as records, in the order in which they are to be appended."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from geolog.spark.sink_rows import SINK_TYPES
from geolog.wire.session.json_records import (
    RECORD_KEYS,
    check_keys,
    parse_content,
    parse_object,
)
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

_POSITION_KEYS = frozenset(
    {
        *("stream", "partition", "epoch", "dlsn", "sequence", "timestamp", "origin"),
        *("served_region", "hedged", "type"),
    }
)
"""Where a line's record came from, as `geolog read -o jsonl` tells it; not used."""

_EXPORTED = ("partition", "sequence")
"""Columns that order the rows of an export."""

_RECORD_SCHEMA = "value binary, key binary, headers map<string,binary>"
_SHOWN_CHARACTERS = 60


def parquet_rows(
    spark: SparkSession, source: str, *, value: str, key: str | None, order_by: Sequence[str]
) -> DataFrame:
    """The records of Parquet files, in order. InvalidArgumentError for columns of other types.

    value, key: the columns; None as key takes `key` if there is one. A column `headers` gives
    the headers. order_by: columns, or empty for partition and sequence if it has them, else the
    order of the files' names and of the rows in them.
    """
    frame = spark.read.parquet(source)
    chosen = [
        _bytes_of(frame, source, value).alias("value"),
        _key_of(frame, source, key).alias("key"),
        _headers_of(frame, source).alias("headers"),
    ]
    for name in order_by:
        _check_column(frame, source, name)
    if not order_by and all(name in frame.columns for name in _EXPORTED):
        order_by = _EXPORTED
    order = [f.col(_quoted(name)) for name in order_by] or [
        f.col("_metadata.file_path"),
        f.col("_metadata.row_index"),
    ]
    return _in_order(frame, chosen, order)


def json_rows(spark: SparkSession, source: str) -> DataFrame:
    """The records of lines of JSON, in the order of the files' names and of their lines.

    The lines are those of `geolog read -o jsonl` and `geolog append --format jsonl`.
    """
    lines = spark.read.text(source).where("trim(value) != ''")
    chosen = [f.col("value").alias("line"), f.col("_metadata.file_path").alias("file")]
    order = [
        f.col("_metadata.file_path"),
        f.col("_metadata.file_block_start"),
        f.monotonically_increasing_id(),  # Rises along the lines of a block.
    ]
    # Spark may evaluate a deterministic function once for each column that it gives.
    parsed = f.udf(_record_of, _RECORD_SCHEMA, useArrow=False).asNondeterministic()
    return (
        _in_order(lines, chosen, order)
        .select(parsed("line", "file").alias("record"))
        .select("record.*")
    )


def _in_order(frame: DataFrame, chosen: Sequence[Column], order: Sequence[Column]) -> DataFrame:
    places = [f"_place_{number}" for number in range(len(order))]
    placed = [one.alias(place) for one, place in zip(order, places, strict=True)]
    return frame.select(*chosen, *placed).orderBy(*places).drop(*places)


def _record_of(line: str, file: str) -> tuple[bytes, bytes | None, Mapping[str, bytes] | None]:
    """Value, key and headers."""
    shown = line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
    where = f"{file}: the line {shown}"
    document = parse_object(line, where)
    if "gap" in document:
        raise InvalidArgumentError(
            f"{where} is a gap in the stream it was read from, not a record: remove such lines"
            " if the copy may lack those records"
        )
    taken = {name: one for name, one in document.items() if name not in _POSITION_KEYS}
    check_keys(taken, RECORD_KEYS, where)
    content = parse_content(taken, where)
    return content.value, content.key, content.headers


def _key_of(frame: DataFrame, source: str, key: str | None) -> Column:
    if key is None and "key" not in frame.columns:
        return f.lit(None).cast("binary")
    return _bytes_of(frame, source, key or "key")


def _bytes_of(frame: DataFrame, source: str, name: str) -> Column:
    _check_column(frame, source, name)
    kind = frame.schema[name].dataType.simpleString()
    if kind not in SINK_TYPES["value"]:
        raise InvalidArgumentError(
            f"column {name} of {source} is {kind}; values and keys are bytes or text (binary or"
            " string): name other columns by --value and --key, or cast it as the files are"
            " written"
        )
    return f.col(_quoted(name)).cast("binary")


def _headers_of(frame: DataFrame, source: str) -> Column:
    if "headers" not in frame.columns:
        return f.lit(None).cast("map<string,binary>")
    kind = frame.schema["headers"].dataType.simpleString()
    if kind not in ("map<string,binary>", "map<string,string>"):
        raise InvalidArgumentError(
            f"column headers of {source} is {kind}; it must be map<string,binary> or"
            " map<string,string>"
        )
    return f.col("headers").cast("map<string,binary>")


def _check_column(frame: DataFrame, source: str, name: str) -> None:
    if name not in frame.columns:
        raise InvalidArgumentError(
            f"{source} has no column {name!r}{suggestion(name, frame.columns)} (columns:"
            f" {', '.join(frame.columns)})"
        )


def _quoted(name: str) -> str:
    return f"`{name}`"
