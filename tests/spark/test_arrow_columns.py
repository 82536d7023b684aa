"""Arrow batches hold what the records say, for any columns and any rows of a batch."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from geolog.client.reading.record import RecordBatch
from geolog.spark.arrow_columns import BATCH_ROWS, BatchJoiner, arrow_schema
from geolog.spark.fields import FIELDS
from geolog.wire.batch import open_batch, seal_batch

ROWS = st.tuples(
    st.binary(max_size=20),
    st.none() | st.binary(max_size=5),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3),
)


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    rows = draw(st.lists(ROWS, min_size=1, max_size=20))
    values, keys, transaction_ids, headers = zip(*rows, strict=True)
    sealed = seal_batch(
        values, created_us=1, keys=keys, transaction_ids=transaction_ids, headers=headers
    )
    first_row = draw(st.integers(0, len(rows) - 1))
    return RecordBatch(
        stream="shop/orders",
        partition=draw(st.integers(0, 255)),
        epoch=1,
        segment=draw(st.integers(1, 2**40)),
        entry=draw(st.integers(0, 2**40)),
        first_slot=draw(st.integers(0, 1000)),
        first_sequence=draw(st.integers(0, 2**40)),
        timestamp_us=draw(st.integers(0, 2**50)),
        served_region="eu-west",
        batch=open_batch(sealed.data),
        first_row=first_row,
        end_row=draw(st.integers(first_row + 1, len(rows))),
        hedged=draw(st.booleans()),
    )


def rows_of(batch: RecordBatch) -> list[tuple[object, ...]]:
    """The rows as the records say, one by one."""
    return [
        (
            one.stream,
            one.partition,
            one.dlsn.segment,
            one.dlsn.entry,
            one.dlsn.slot,
            one.sequence,
            one.transaction_id,
            one.timestamp_us,
            one.key,
            one.value,
            list(one.headers.items()),
            one.served_region,
            one.hedged,
        )
        for one in batch
    ]


def converted(given_batches: list[RecordBatch]) -> list[tuple[object, ...]]:
    joiner = BatchJoiner(FIELDS)
    made = [part for batch in given_batches for part in joiner.add(batch)] + list(joiner.rest())
    table = pa.Table.from_batches(made)
    table.validate(full=True)
    at = table.schema.get_field_index("timestamp")
    table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@given(st.lists(batches(), min_size=1, max_size=4))
def test_rows_are_those_of_the_records(given_batches: list[RecordBatch]) -> None:
    assert converted(given_batches) == [row for one in given_batches for row in rows_of(one)]


def test_the_schema_is_the_one_that_spark_derives() -> None:
    fields = [StructField(name, kind) for name, kind in FIELDS.items()]

    derived = to_arrow_schema(StructType(fields), timezone="UTC")

    assert arrow_schema(FIELDS) == derived


def test_small_batches_are_joined() -> None:
    sealed = seal_batch([b"value"] * 100, created_us=1)
    batch = RecordBatch(
        stream="shop/orders",
        partition=0,
        epoch=1,
        segment=1,
        entry=0,
        first_slot=0,
        first_sequence=0,
        timestamp_us=1,
        served_region="eu-west",
        batch=open_batch(sealed.data),
        end_row=100,
    )
    joiner = BatchJoiner(["value"])

    made = [part for _ in range(1000) for part in joiner.add(batch)] + list(joiner.rest())

    assert sum(part.num_rows for part in made) == 100_000
    assert all(part.num_rows >= BATCH_ROWS for part in made[:-1])
