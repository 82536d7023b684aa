"""The sealed batch: it opens to the same records, and refuses what does not fit."""

import random
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.batch import Codec, open_batch, peek_batch_header, seal_batch, verify_batch
from geolog.wire.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX
from tests.pure.wire.samples import batch_of_all_columns, batch_of_values
from topology.errors import InvalidArgumentError, TooLargeError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@attrs.frozen
class Record:
    """One record as an application sees it."""

    value: bytes
    key: bytes | None
    transaction_id: int | None
    created_us: int
    headers: dict[str, bytes]


records = st.builds(
    Record,
    value=st.binary(max_size=50),
    key=st.none() | st.binary(max_size=10),
    transaction_id=st.none() | INT64,
    created_us=INT64,
    headers=st.dictionaries(st.text(max_size=5), st.binary(max_size=10), max_size=3),
)


def sealed_and_opened(rows: Sequence[Record], *, compress: bool) -> list[Record]:
    sealed = seal_batch(
        [row.value for row in rows],
        created_us=[row.created_us for row in rows],
        keys=[row.key for row in rows],
        transaction_ids=[row.transaction_id for row in rows],
        headers=[row.headers for row in rows],
        compress=compress,
    )
    batch = open_batch(sealed.data)
    assert batch.values() == [row.value for row in rows]
    for first in range(len(rows) + 1):
        assert batch.values(first) == [row.value for row in rows[first:]]
        assert batch.values(0, first) == [row.value for row in rows[:first]]
    return [
        Record(
            batch.value(row),
            batch.key(row),
            batch.transaction_id(row),
            batch.created_us(row),
            batch.headers(row),
        )
        for row in range(len(batch))
    ]


@given(st.lists(records, min_size=1, max_size=40), st.booleans())
def test_a_sealed_batch_opens_to_the_same_records(rows: list[Record], compress: bool) -> None:  # noqa: FBT001 - drawn
    assert sealed_and_opened(rows, compress=compress) == rows


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65])
def test_validity_holds_at_the_edges_of_its_bytes(count: int) -> None:
    keys = [b"k" if row % 3 else None for row in range(count)]
    keys[-1] = b"last"

    batch = open_batch(seal_batch([b"v"] * count, created_us=0, keys=keys).data)

    assert [batch.key(row) for row in range(count)] == keys


def test_an_empty_column_is_left_out() -> None:
    bare = seal_batch([b"a", b"b"], created_us=5)

    full = seal_batch(
        [b"a", b"b"],
        created_us=[5, 5],
        keys=[None, None],
        transaction_ids=[None, None],
        headers=[{}, {}],
    )

    assert full == bare


def test_an_empty_key_is_not_the_absence_of_one() -> None:
    batch = open_batch(batch_of_all_columns().data)

    assert [batch.key(row) for row in range(3)] == [b"EWR", None, b""]


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_outside_the_batch_is_an_index_error(row: int) -> None:
    batch = open_batch(batch_of_all_columns().data)

    for read in (
        batch.value,
        batch.key,
        batch.transaction_id,
        batch.created_us,
        batch.headers,
    ):
        with pytest.raises(IndexError):
            read(row)


def test_columns_are_where_arrow_expects_them() -> None:
    batch = open_batch(batch_of_all_columns().data)
    values, keys = batch.value_column, batch.key_column

    assert keys is not None
    assert keys.validity is not None
    assert values.offsets.tolist() == [0, 6, 6, 86]
    assert values.data.tobytes() == b"depart" + b"land" * 20
    assert keys.validity.tobytes() == bytes([0b101])
    assert keys.offsets.tolist() == [0, 3, 3, 3]
    assert batch.created_column.numbers.format == "q"


def test_the_columns_of_a_raw_batch_lie_in_the_bytes_that_were_given() -> None:
    data = bytearray(batch_of_values(b"aaaa", b"bbbb").data)
    batch = open_batch(memoryview(data))

    data[data.index(b"bbbb")] = ord("x")

    assert batch.value(1) == b"xbbb"


def test_peek_and_verify_describe_the_sealed_batch() -> None:
    sealed = batch_of_all_columns(compress=True)

    header = peek_batch_header(sealed.data)

    assert header.length_bytes == sealed.length_bytes
    assert header.record_count == 3
    assert (header.header_crc, header.body_crc) == (sealed.header_crc, sealed.body_crc)
    assert verify_batch(sealed.data) == sealed


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        (b'{"origin":"EWR","dest":"LAX"}' * 9000, Codec.LZ4),
        (random.Random(7).randbytes(260_000), Codec.NONE),
        (random.Random(7).randbytes(300), Codec.NONE),
        (b"ab" * 40, Codec.LZ4),
    ],
    ids=["text", "noise", "little noise", "little text"],
)
def test_compression_is_used_where_it_pays(value: bytes, codec: Codec) -> None:
    sealed = seal_batch([value], created_us=0)

    header = peek_batch_header(sealed.data)

    assert header.codec is codec
    assert header.stored_bytes <= header.raw_bytes
    assert open_batch(sealed.data).value(0) == value


def test_a_record_may_be_as_large_as_the_limit_and_no_larger() -> None:
    largest = bytes(RECORD_BYTES_MAX)

    assert open_batch(seal_batch([largest], created_us=0).data).value(0) == largest
    with pytest.raises(TooLargeError, match=r"record 1 of a batch has 1048577 bytes.* 1048576"):
        seal_batch([b"", largest + b"x"], created_us=0)


def test_key_and_headers_count_towards_the_record_limit() -> None:
    value = bytes(RECORD_BYTES_MAX - 10)
    fits = {"keys": [b"12345"], "headers": [{"a": b"1234"}]}

    seal_batch([value], created_us=0, **fits)  # type: ignore[arg-type]
    with pytest.raises(TooLargeError):
        seal_batch([value], created_us=0, keys=[b"12345"], headers=[{"ä": b"1234"}])


def test_a_batch_over_its_limit_is_refused_however_well_it_compresses() -> None:
    with pytest.raises(TooLargeError, match=f"limit of {BATCH_BYTES_MAX}"):
        seal_batch([bytes(RECORD_BYTES_MAX)] * 4, created_us=0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"values": [], "created_us": 0}, "without records"),
        ({"values": [b"a"], "created_us": [1, 2]}, "created_us has 2 rows for 1 values"),
        ({"values": [b"a"], "created_us": 0, "keys": []}, "keys has 0 rows"),
        ({"values": [b"a"], "created_us": 0, "headers": [{}, {}]}, "headers has 2 rows"),
        ({"values": [b"a"], "created_us": 1 << 63}, "creation time out of 64-bit range"),
        ({"values": [b"a"], "created_us": 0, "transaction_ids": [1 << 63]}, "transaction id"),
        (
            {"values": [b"a"], "created_us": 0, "headers": [{"\ud800": b""}]},
            "header's name is not text",
        ),
    ],
)
def test_impossible_columns_are_refused(columns: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        seal_batch(**columns)  # type: ignore[arg-type]
