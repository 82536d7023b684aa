"""The columns of a read, with Spark's types, and the check of a schema that a user gives."""

from collections import Counter

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

FIELDS = {
    "stream": StringType(),
    "partition": IntegerType(),
    "segment": LongType(),
    "entry": LongType(),
    "slot": IntegerType(),
    "sequence": LongType(),
    "transaction_id": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": MapType(StringType(), BinaryType()),
    "served_region": StringType(),
    "hedged": BooleanType(),
}


def check_schema(schema: StructType) -> None:
    """InvalidArgumentError unless each column is one of ours, once, with its type."""
    if not schema.fields:
        raise InvalidArgumentError(
            f"the schema has no column: name at least one of {', '.join(FIELDS)}"
        )
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise InvalidArgumentError(f"the schema has column {name!r} {count} times")
    for field in schema.fields:
        _check_field(field)


def _check_field(field: StructField) -> None:
    ours = FIELDS.get(field.name)
    if ours is None:
        raise InvalidArgumentError(
            f"the schema has a column {field.name!r}{suggestion(field.name, FIELDS)} (columns:"
            f" {', '.join(FIELDS)})"
        )
    if field.dataType.simpleString() != ours.simpleString():
        raise InvalidArgumentError(
            f"the schema has column {field.name} as {field.dataType.simpleString()}; it is"
            f" {ours.simpleString()}"
        )
    if not field.nullable or field.dataType != ours:
        raise InvalidArgumentError(
            f"the schema has column {field.name} without nulls: leave NOT NULL out, and give"
            " types their default of nullable=True"
        )
