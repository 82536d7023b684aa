"""The columns that a write takes, and how rows become records."""

from collections import Counter
from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from geolog.protocol.stream_state import StreamName
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

SINK_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("map<string,binary>",),
    "stream": ("string",),
}
"""Types of each column, as Spark writes them; the first is the one to cast to."""


@attrs.frozen
class SinkRow:
    """One record to write."""

    value: bytes
    key: bytes | None
    headers: dict[str, bytes] | None
    stream: str


def check_sink_schema(schema: StructType) -> None:
    """InvalidArgumentError unless these columns can be written; says how to mend them."""
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise InvalidArgumentError(f"the rows have column {name!r} {count} times")
    for field in schema.fields:
        _check_field(field)
    if "value" not in schema.names:
        raise InvalidArgumentError(
            "the rows have no column `value`: select the record's bytes as `value`, e.g."
            " .selectExpr('to_json(struct(*)) AS value')"
        )


def _check_field(field: StructField) -> None:
    kinds = SINK_TYPES.get(field.name)
    if kinds is None:
        raise InvalidArgumentError(
            f"the rows have a column {field.name!r}{suggestion(field.name, SINK_TYPES)}"
            f" (columns of a write: {', '.join(SINK_TYPES)}): .select() those"
        )
    found = field.dataType.simpleString()
    if found not in kinds:
        raise InvalidArgumentError(
            f"column {field.name} is {found}; it must be {' or '.join(kinds)}: cast it, e.g."
            f" .withColumn({field.name!r}, col({field.name!r}).cast('string'))"
            if "string" in kinds
            else f"column {field.name} is {found}; it must be {' or '.join(kinds)}"
        )


def rows_in(batch: pa.RecordBatch, stream: str | None) -> Iterator[SinkRow]:
    """The rows of a batch. InvalidArgumentError for one without a value or a stream."""
    columns = {
        name: _as_bytes(name, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    nothing = [None] * batch.num_rows
    try:
        values, keys, headers, streams = (
            columns[name].to_pylist() if name in columns else nothing for name in SINK_TYPES
        )
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"a stream's or header's name is not UTF-8: {error.object[:40]!r}. Names are text:"
            " decode them first, e.g. with decode(name, 'ISO-8859-1')"
        ) from None
    known = stream
    for place, value in enumerate(values):
        if value is None:
            raise InvalidArgumentError(
                "a row has a null value: leave such rows out, or write an empty value for them"
            )
        target = streams[place] if stream is None else stream
        if target is None:
            raise InvalidArgumentError("a row has no stream: its column `stream` is null")
        if target != known:
            StreamName.parse(target)
            known = target
        yield SinkRow(value, keys[place], _headers(headers[place]), target)


def _as_bytes(name: str, column: pa.Array) -> pa.Array:
    """A column of text as its bytes, whatever they are: Spark's text may be any bytes."""
    return column.cast(pa.binary()) if "binary" in SINK_TYPES[name] else column


def _headers(pairs: list[tuple[str, bytes | None]] | None) -> dict[str, bytes] | None:
    if not pairs:
        return None
    for name, content in pairs:
        if content is None:
            raise InvalidArgumentError(
                f"header {name!r} of a row is null: leave it out, or give it an empty value"
            )
    return {name: content for name, content in pairs if content is not None}
