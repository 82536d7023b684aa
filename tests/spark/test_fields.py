"""A schema that a user gives is taken if it has some of our columns, as they are."""

import pytest
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from geolog.spark.fields import FIELDS, check_schema
from topology.errors import InvalidArgumentError

VALUE = StructField("value", BinaryType())


def test_every_column_may_be_named_in_any_order() -> None:
    check_schema(StructType([StructField(name, FIELDS[name]) for name in reversed(FIELDS)]))
    check_schema(StructType([VALUE]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "the schema has no column: name at least one of stream, partition"),
        ([VALUE, VALUE], "column 'value' 2 times"),
        ([StructField("valeu", BinaryType())], "column 'valeu'; did you mean 'value'"),
        ([StructField("VALUE", BinaryType())], "column 'VALUE'; did you mean 'value'"),
        ([StructField("value", StringType())], "column value as string; it is binary"),
        (
            [StructField("value", BinaryType(), nullable=False)],
            "column value without nulls: leave NOT NULL out",
        ),
        (
            [
                StructField(
                    "headers", MapType(StringType(), BinaryType(), valueContainsNull=False)
                )
            ],
            "column headers without nulls: leave NOT NULL out",
        ),
    ],
)
def test_any_other_schema_is_refused(fields: list[StructField], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_schema(StructType(fields))
