"""A write says what it needs: options, an identity, and columns that a record has."""

import re

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from geolog.spark.sink_options import SINK_OPTION_NAMES, SinkOptions, parse_sink_options
from geolog.spark.sink_rows import SINK_TYPES, SinkRow, check_sink_schema, rows_in
from tests.static.checkout import ROOT
from topology.errors import InvalidArgumentError

PAGE = (ROOT / "docs" / "SPARK_WRITES.md").read_text(encoding="utf-8")


def parsed(**options: str) -> SinkOptions:
    return parse_sink_options(given(options), has_stream_column=False, is_streaming=False)


def parsed_of_query(**options: str) -> SinkOptions:
    return parse_sink_options(given(options), has_stream_column=False, is_streaming=True)


def given(options: dict[str, str]) -> dict[str, str]:
    """Options as Spark gives them; an empty one is left out."""
    both = {"zookeeper": "127.0.0.1:2181", "path": "shop/orders"} | options
    return {name: value for name, value in both.items() if value}


def test_the_identity_is_the_writer_else_the_checkpoint() -> None:
    assert parsed(writer="w").sink == "w"
    assert parsed_of_query(checkpointLocation="/c").sink == "checkpoint:/c"
    named = parsed_of_query(writer="w", checkpointLocation="/c")
    assert (named.sink, named.checkpoint) == ("w", "/c")
    assert parsed(exactlyOnce="FALSE").sink is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zookeeper": "", "writer": "w"}, "option zookeeper is missing"),
        ({}, "exactlyOnce needs a name for this run"),
        ({"checkpointLocation": "/c"}, "exactlyOnce needs a name for this run"),
        ({"exactlyOnce": "maybe"}, "exactlyOnce='maybe' must be true or false"),
        ({"exactlyOnce": "false", "writer": "w"}, "leave out one of the two options"),
        ({"writr": "w"}, "unknown option 'writr'; did you mean 'writer'"),
        ({"writer": "w", "path": ""}, "no stream to write to"),
        ({"writer": "w", "path": "orders"}, "orders"),
        ({"writer": "w" * 201}, "writer has 201 characters"),
        ({"writer": "w", "stream": "shop/a"}, "option stream is given twice"),
    ],
)
def test_wrong_options_are_told_with_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        parsed(**options)


def test_a_query_without_an_identity_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="explicit checkpointLocation"):
        parsed_of_query()


def schema_of(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def test_columns_of_bytes_or_text_are_taken() -> None:
    headers = MapType(StringType(), BinaryType())
    check_sink_schema(schema_of(value=BinaryType(), key=StringType(), headers=headers))
    check_sink_schema(schema_of(value=StringType(), key=BinaryType(), stream=StringType()))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (schema_of(value=IntegerType()), "column value is int; it must be binary or string"),
        (schema_of(value=StringType(), key=LongType()), "column key is bigint"),
        (schema_of(key=StringType()), "no column `value`"),
        (schema_of(valeu=StringType()), "a column 'valeu'; did you mean 'value'"),
        (schema_of(value=StringType(), headers=StringType()), "it must be map<string,binary>"),
        (StructType([StructField("value", StringType())] * 2), "column 'value' 2 times"),
    ],
)
def test_wrong_columns_are_told_with_what_to_do(schema: StructType, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        check_sink_schema(schema)


def test_text_becomes_bytes_and_what_is_missing_stays_away() -> None:
    batch = pa.record_batch(
        {
            "value": ["ü", ""],
            "key": pa.array([None, b"k"], pa.binary()),
            "headers": pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    assert list(rows_in(batch, "a/b")) == [
        SinkRow("ü".encode(), None, {"a": b"1"}, "a/b"),
        SinkRow(b"", b"k", None, "a/b"),
    ]


def text_of(data: bytes) -> pa.Array:
    """Text as Spark's cast of bytes makes it: the same bytes."""
    return pa.array([data], pa.binary()).cast(pa.string(), safe=False).view(pa.string())


def test_text_that_is_not_utf_8_is_written_as_its_bytes() -> None:
    batch = pa.record_batch({"value": text_of(b"\xff\x00"), "key": text_of(b"\xfe")})

    assert list(rows_in(batch, "a/b")) == [SinkRow(b"\xff\x00", b"\xfe", None, "a/b")]


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    headers = pa.MapArray.from_arrays([0, 1], text_of(b"\xff"), pa.array([b"1"]))
    for columns in ({"stream": text_of(b"\xff")}, {"headers": headers}):
        batch = pa.record_batch({"value": ["a"], **columns})
        with pytest.raises(InvalidArgumentError, match=r"name is not UTF-8: b'.xff'"):
            list(rows_in(batch, None if "stream" in columns else "a/b"))


def test_going_on_after_a_loss_is_for_queries() -> None:
    options = {"writer": "w", "failOnDataLoss": "false"}
    assert parsed_of_query(writer="w").is_failing_on_data_loss
    assert not parsed_of_query(**options).is_failing_on_data_loss
    with pytest.raises(InvalidArgumentError, match="is for streaming queries"):
        parsed(**options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [None], "stream": ["a/b"]}, "a row has a null value"),
        ({"value": [""], "stream": pa.nulls(1, pa.string())}, "a row has no stream"),
        ({"value": [""], "stream": ["orders"]}, "orders"),
    ],
)
def test_rows_that_are_no_records_are_refused(
    columns: dict[str, list[str | None]], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        list(rows_in(pa.record_batch(columns), None))


def test_the_page_has_every_option_and_column() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert named == {*SINK_OPTION_NAMES, *SINK_TYPES}
