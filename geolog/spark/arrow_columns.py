"""Builds Arrow record batches from sealed columns, without touching single records."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from geolog.client.reading.record import RecordBatch
from geolog.wire.columns import BinaryColumn, Int64Column, MapColumn

BATCH_ROWS = 16_384
"""Small batches are joined until they have this many rows, or `BATCH_BYTES`."""

BATCH_BYTES = 4 << 20

_HEADERS = pa.map_(pa.string(), pa.binary())
_TYPES = {
    "stream": pa.string(),
    "partition": pa.int32(),
    "segment": pa.int64(),
    "entry": pa.int64(),
    "slot": pa.int32(),
    "sequence": pa.int64(),
    "transaction_id": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": _HEADERS,
    "served_region": pa.string(),
    "hedged": pa.bool_(),
}


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in names])


class BatchJoiner:
    """Converts batches of records, and joins small ones: Spark pays for each batch."""

    def __init__(self, names: Iterable[str], keys: Iterable[bytes] | None = None) -> None:
        """keys: only records with one of these; None for all."""
        self._schema = arrow_schema(names)
        self._keys = None if keys is None else pa.array(sorted(keys), pa.binary())
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; give what is large enough now."""
        converted = pa.RecordBatch.from_arrays(
            [_column(name, batch) for name in self._schema.names], schema=self._schema
        )
        size_bytes = batch.batch.header.raw_bytes
        if self._keys is not None:
            converted = converted.filter(pc.is_in(_column("key", batch), self._keys))
            size_bytes = size_bytes * converted.num_rows // len(batch)
            if not converted.num_rows:
                return
        self._waiting.append(converted)
        self._rows += converted.num_rows
        self._bytes += size_bytes
        if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Give what waits."""
        if self._waiting:
            joined = pa.concat_batches(self._waiting)
            self._waiting, self._rows, self._bytes = [], 0, 0
            yield joined


def _column(name: str, batch: RecordBatch) -> pa.Array:
    rows = len(batch)
    columns = batch.batch
    match name:
        case "sequence":
            return _counted(batch.first_sequence + batch.first_row, rows, pa.int64())
        case "slot":
            return _counted(batch.first_slot + batch.first_row, rows, pa.int32())
        case "timestamp":
            return _repeated(batch.timestamp_us, rows, pa.timestamp("us", tz="UTC"))
        case "value":
            return _binary(columns.value_column).slice(batch.first_row, rows)
        case "key":
            if columns.key_column is None:
                return pa.nulls(rows, pa.binary())
            return _binary(columns.key_column).slice(batch.first_row, rows)
        case "transaction_id":
            if columns.transaction_id_column is None:
                return pa.nulls(rows, pa.int64())
            return _int64(columns.transaction_id_column).slice(batch.first_row, rows)
        case "headers":
            if columns.header_column is None:
                return _no_headers(rows)
            return _map(columns.header_column).slice(batch.first_row, rows)
        case _:
            return _repeated(getattr(batch, name), rows, _TYPES[name])


def _repeated(item: object, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(item, kind), rows)


def _counted(first: int, rows: int, kind: pa.DataType) -> pa.Array:
    """The numbers from `first` on: a running sum of ones, made by Arrow."""
    ones = pa.repeat(pa.scalar(1, kind), rows)
    return pc.cumulative_sum(ones, start=pa.scalar(first - 1, kind))


def _binary(column: BinaryColumn, kind: pa.DataType | None = None) -> pa.Array:
    return pa.Array.from_buffers(
        kind or pa.binary(),
        len(column.offsets) - 1,
        [_validity(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
    )


def _int64(column: Int64Column) -> pa.Array:
    buffers = [_validity(column.validity), pa.py_buffer(column.numbers)]
    return pa.Array.from_buffers(pa.int64(), len(column.numbers), buffers)


def _map(column: MapColumn) -> pa.Array:
    offsets = pa.Array.from_buffers(
        pa.int32(), len(column.offsets), [None, pa.py_buffer(column.offsets)]
    )
    return pa.MapArray.from_arrays(
        offsets, _binary(column.keys, pa.string()), _binary(column.values), type=_HEADERS
    )


def _no_headers(rows: int) -> pa.Array:
    offsets = pa.repeat(pa.scalar(0, pa.int32()), rows + 1)
    return pa.MapArray.from_arrays(
        offsets, pa.array([], pa.string()), pa.array([], pa.binary()), type=_HEADERS
    )


def _validity(bits: memoryview | None) -> pa.Buffer | None:
    return None if bits is None else pa.py_buffer(bits)
