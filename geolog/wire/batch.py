"""The sealed batch: records as columns, compressed and checksummed once, by their writer.

Proxy, journal, relay, reader and Spark carry the same bytes; nobody seals a batch again.
Layout, little-endian (docs/FORMATS.md shows one byte by byte):

    0  magic "GLBA"         16  stored length of the body u32
    4  header CRC32C u32    20  raw length of the body u32
    8  version u8           24  CRC32C of the body as stored u32
    9  codec u8             28  zero u32
    10 column flags u16     32  body
    12 record count u32

The header's checksum covers bytes 8 to 32. It comes before the bytes it covers, because bytes
that end in their own CRC always have the same CRC: an entry's CRC would be blind to them.
"""

import enum
import struct
from collections.abc import Mapping, Sequence
from operator import add

import attrs
import lz4.block
from crc32c import crc32c

from geolog.wire.columns import (
    BinaryColumn,
    ColumnReader,
    Int64Column,
    MapColumn,
    binary_buffers,
    int64_buffers,
    map_buffers,
    validity_buffers,
)
from geolog.wire.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX
from topology.errors import DamagedBytesError, InvalidArgumentError, TooLargeError

MAGIC = b"GLBA"
VERSION = 1
HEADER_BYTES = 32

_HEADER = struct.Struct("<4sIBBHIIIII")
_HEADER_CRC = struct.Struct("<I")
_CHECKED_FROM = 8
_ROOM = bytes(HEADER_BYTES)

_SAMPLED_BYTES_MIN = 64 << 10
"""Bodies below this are compressed without a trial."""
_SAMPLE_BYTES = 4 << 10
_LZ4_RATIO_MAX = 255
"""Maximum expansion of an LZ4 block: 255 bytes for each of its own."""


class Codec(enum.IntEnum):
    """How a body is stored."""

    NONE = 0
    LZ4 = 1


class Columns(enum.IntFlag):
    """A batch's optional columns, in the order in which they follow the values."""

    NONE = 0
    KEYS = 1
    TRANSACTION_IDS = 2
    HEADERS = 4


_CODECS = tuple(Codec)
_COLUMNS_ALL = int(Columns.KEYS | Columns.TRANSACTION_IDS | Columns.HEADERS)
_COLUMN_SETS = tuple(Columns(flags) for flags in range(_COLUMNS_ALL + 1))
"""By number: looking one up is several times faster than making it."""


@attrs.frozen
class BatchHeader:
    """The content of the first 32 bytes."""

    codec: Codec
    columns: Columns
    record_count: int
    stored_bytes: int
    raw_bytes: int
    body_crc: int
    header_crc: int

    @property
    def length_bytes(self) -> int:
        """Length of the whole sealed batch."""
        return HEADER_BYTES + self.stored_bytes


@attrs.frozen
class SealedBatch:
    """A batch in transit or at rest. `data` is never changed."""

    data: bytes | memoryview = attrs.field(repr=False)
    record_count: int
    header_crc: int
    body_crc: int

    @property
    def length_bytes(self) -> int:
        """Length of the whole sealed batch."""
        return len(self.data)


@attrs.frozen(eq=False)
class Batch:
    """An opened batch: each row is a record. The columns are Arrow's, and were not copied."""

    header: BatchHeader
    created_column: Int64Column = attrs.field(repr=False)
    value_column: BinaryColumn = attrs.field(repr=False)
    key_column: BinaryColumn | None = attrs.field(repr=False)
    transaction_id_column: Int64Column | None = attrs.field(repr=False)
    header_column: MapColumn | None = attrs.field(repr=False)

    def __len__(self) -> int:
        return self.header.record_count

    def value(self, row: int) -> bytes:
        """The record's value."""
        if row < 0:
            raise IndexError(row)
        return self.value_column.raw(row)

    def values(self, first: int = 0, end: int | None = None) -> list[bytes]:
        """The values of all records, or of some rows: faster than one by one."""
        return self.value_column.raw_list(first, end)

    def key(self, row: int) -> bytes | None:
        """The record's key, if it has one."""
        return None if self.key_column is None else self.key_column[row]

    def transaction_id(self, row: int) -> int | None:
        """The application's number for the record, if it has one."""
        return None if self.transaction_id_column is None else self.transaction_id_column[row]

    def created_us(self, row: int) -> int:
        """Creation time of the record, by its writer's clock: microseconds UTC since 1970."""
        created_us = self.created_column[row]
        assert created_us is not None
        return created_us

    def headers(self, row: int) -> dict[str, bytes]:
        """The record's headers; a repeated name has its last value."""
        return {} if self.header_column is None else self.header_column[row]


def seal_batch(
    values: Sequence[bytes | memoryview],
    *,
    created_us: int | Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    transaction_ids: Sequence[int | None] | None = None,
    headers: Sequence[Mapping[str, bytes]] | None = None,
    compress: bool = True,
) -> SealedBatch:
    """Seal records, given column by column; one `created_us` may serve for all.

    The body is stored uncompressed where LZ4 would save less than an eighth. TooLargeError for
    a record or batch over its limit, InvalidArgumentError for columns of different lengths.
    """
    count = len(values)
    created = [created_us] * count if isinstance(created_us, int) else created_us
    _check_row_counts(
        count, created_us=created, keys=keys, transaction_ids=transaction_ids, headers=headers
    )
    lengths = list(map(len, values))
    _check_record_lengths(lengths, keys, headers)
    columns, optional = _lay_out_optional(keys, transaction_ids, headers)
    sealed = bytearray().join(
        [
            _ROOM,
            *_int64_buffers("creation time", created),
            *binary_buffers(values, lengths),
            *optional,
        ]
    )
    raw_bytes = len(sealed) - HEADER_BYTES
    if raw_bytes > BATCH_BYTES_MAX:
        raise TooLargeError(
            f"a batch of {raw_bytes} bytes is over the limit of {BATCH_BYTES_MAX}"
        )
    codec = Codec.NONE
    shorter = _compressed(memoryview(sealed)[HEADER_BYTES:]) if compress else None
    if shorter is not None:
        codec = Codec.LZ4
        sealed = bytearray().join([_ROOM, shorter])
    return _finished(sealed, codec, columns, count, raw_bytes)


def peek_batch_header(data: bytes | memoryview) -> BatchHeader:
    """Parse the header at the front of `data`, ignoring the body. DamagedBytesError."""
    if len(data) < HEADER_BYTES:
        raise DamagedBytesError(f"batch truncated to {len(data)} bytes, within its header")
    magic, header_crc, version, codec, flags, count, stored, raw, body_crc, reserved = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        raise DamagedBytesError(f"a batch begins with {magic!r} instead of {MAGIC!r}")
    if crc32c(data[_CHECKED_FROM:HEADER_BYTES]) != header_crc:
        raise DamagedBytesError("the header of a batch does not match its checksum")
    if version != VERSION:
        raise DamagedBytesError(f"unknown version {version} of the batch format")
    if codec >= len(_CODECS) or flags & ~_COLUMNS_ALL or reserved:
        raise DamagedBytesError(f"unknown codec {codec} or flags {flags:#x} of a batch")
    header = BatchHeader(
        _CODECS[codec], _COLUMN_SETS[flags], count, stored, raw, body_crc, header_crc
    )
    _check_lengths(header)
    return header


def verify_batch(data: bytes | memoryview) -> SealedBatch:
    """Check header, length and body checksum of a sealed batch, without opening it."""
    view = memoryview(data)
    header = peek_batch_header(view)
    verify_body(header, view)
    return SealedBatch(data, header.record_count, header.header_crc, header.body_crc)


def verify_body(header: BatchHeader, data: bytes | memoryview) -> None:
    """Check length and body checksum of a batch whose header was parsed. DamagedBytesError."""
    if len(data) != header.length_bytes:
        raise DamagedBytesError(
            f"a batch has {len(data)} bytes, its header says {header.length_bytes}"
        )
    if crc32c(data[HEADER_BYTES:]) != header.body_crc:
        raise DamagedBytesError("the body of a batch does not match its checksum")


def open_batch(data: bytes | memoryview) -> Batch:
    """Check a whole sealed batch, and give access to its records. DamagedBytesError.

    The batch refers to `data` if that is not compressed.
    """
    view = memoryview(data)
    header = peek_batch_header(view)
    verify_body(header, view)
    return open_verified_batch(header, view)


def open_verified_batch(header: BatchHeader, view: memoryview) -> Batch:
    """The same for a batch that `verify_body` accepted, and that is never changed."""
    body = _raw_body(header, view[HEADER_BYTES:])
    count = header.record_count
    reader = ColumnReader(body)
    batch = Batch(
        header,
        created_column=reader.take_int64(count, is_nullable=False),
        value_column=reader.take_binary(count, is_nullable=False),
        key_column=(
            reader.take_binary(count, is_nullable=True)
            if Columns.KEYS in header.columns
            else None
        ),
        transaction_id_column=(
            reader.take_int64(count, is_nullable=True)
            if Columns.TRANSACTION_IDS in header.columns
            else None
        ),
        header_column=reader.take_map(count) if Columns.HEADERS in header.columns else None,
    )
    reader.finish()
    return batch


def _lay_out_optional(
    keys: Sequence[bytes | None] | None,
    transaction_ids: Sequence[int | None] | None,
    headers: Sequence[Mapping[str, bytes]] | None,
) -> tuple[Columns, list[bytes | memoryview]]:
    """The optional columns that have any content, and their buffers."""
    columns = Columns.NONE
    buffers: list[bytes | memoryview] = []
    if keys is not None and any(key is not None for key in keys):
        columns |= Columns.KEYS
        plain_keys = [key or b"" for key in keys]
        buffers += validity_buffers(keys)
        buffers += binary_buffers(plain_keys, list(map(len, plain_keys)))
    if transaction_ids is not None and any(number is not None for number in transaction_ids):
        columns |= Columns.TRANSACTION_IDS
        buffers += validity_buffers(transaction_ids)
        buffers += _int64_buffers("transaction id", [number or 0 for number in transaction_ids])
    if headers is not None and any(headers):
        columns |= Columns.HEADERS
        buffers += map_buffers(headers)
    return columns, buffers


def _int64_buffers(what: str, numbers: Sequence[int]) -> list[bytes]:
    try:
        return int64_buffers(numbers)
    except OverflowError as error:
        raise InvalidArgumentError(f"{what} out of 64-bit range: {numbers}") from error


def _check_row_counts(count: int, **columns: Sequence[object] | None) -> None:
    if not count:
        raise InvalidArgumentError("cannot seal a batch without records")
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise InvalidArgumentError(f"{name} has {len(column)} rows for {count} values")


def _check_record_lengths(
    lengths: list[int],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Mapping[str, bytes]] | None,
) -> None:
    if keys is not None:
        lengths = list(map(add, lengths, (len(key or b"") for key in keys)))
    if headers is not None:
        lengths = list(map(add, lengths, map(_header_bytes, headers)))
    longest = max(lengths)
    if longest > RECORD_BYTES_MAX:
        raise TooLargeError(
            f"record {lengths.index(longest)} of a batch has {longest} bytes of value, key and "
            f"headers, over the limit of {RECORD_BYTES_MAX}"
        )


def _header_bytes(headers: Mapping[str, bytes]) -> int:
    try:
        return sum(len(name.encode()) + len(value) for name, value in headers.items())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a header's name is not text: {error}") from error


def _finished(
    sealed: bytearray, codec: Codec, columns: Columns, record_count: int, raw_bytes: int
) -> SealedBatch:
    """Write the header into the space reserved for it."""
    view = memoryview(sealed)
    body_crc = crc32c(view[HEADER_BYTES:])
    stored_bytes = len(sealed) - HEADER_BYTES
    _HEADER.pack_into(
        sealed, 0, MAGIC, 0, VERSION, codec, columns,
        record_count, stored_bytes, raw_bytes, body_crc, 0,
    )  # fmt: skip
    header_crc = crc32c(view[_CHECKED_FROM:HEADER_BYTES])
    _HEADER_CRC.pack_into(sealed, len(MAGIC), header_crc)
    return SealedBatch(view.toreadonly(), record_count, header_crc, body_crc)


def _check_lengths(header: BatchHeader) -> None:
    """Refuse impossible lengths before anything of that length is allocated."""
    count, stored_bytes, raw_bytes = header.record_count, header.stored_bytes, header.raw_bytes
    if raw_bytes > BATCH_BYTES_MAX:
        raise DamagedBytesError(
            f"a batch of {raw_bytes} bytes is over the limit of {BATCH_BYTES_MAX}"
        )
    if not 0 < 12 * count < raw_bytes:  # Each record has a time and an offset at least.
        raise DamagedBytesError(f"{count} records do not fit a batch of {raw_bytes} bytes")
    if header.codec is Codec.NONE:
        is_possible = stored_bytes == raw_bytes
    else:
        is_possible = stored_bytes < raw_bytes <= stored_bytes * _LZ4_RATIO_MAX
    if not is_possible:
        raise DamagedBytesError(
            f"{stored_bytes} stored bytes cannot hold a batch of {raw_bytes} bytes"
        )


def _compressed(body: memoryview) -> bytes | None:
    """The body as an LZ4 block, or None if that does not pay."""
    if len(body) >= _SAMPLED_BYTES_MIN and not _sample_shrinks(body):
        return None
    block: bytes = lz4.block.compress(body, store_size=False)
    return block if _pays(len(block), len(body)) else None


def _sample_shrinks(body: memoryview) -> bool:
    """Try four small pieces: a whole incompressible megabyte would cost half a millisecond."""
    starts = range(len(body) // 8, len(body), len(body) // 4)
    pieces = [body[start : start + _SAMPLE_BYTES] for start in starts]
    blocks = [lz4.block.compress(piece, store_size=False) for piece in pieces]
    return _pays(sum(map(len, blocks)), sum(map(len, pieces)))


def _pays(stored_bytes: int, raw_bytes: int) -> bool:
    return stored_bytes <= raw_bytes - raw_bytes // 8


def _raw_body(header: BatchHeader, stored: memoryview) -> memoryview:
    if header.codec is Codec.NONE:
        return stored
    try:
        raw: bytes = lz4.block.decompress(stored, uncompressed_size=header.raw_bytes)
    except lz4.block.LZ4BlockError as error:
        raise DamagedBytesError("the body of a batch is not an LZ4 block") from error
    if len(raw) != header.raw_bytes:
        raise DamagedBytesError(
            f"the body of a batch unpacks to {len(raw)} bytes instead of {header.raw_bytes}"
        )
    return memoryview(raw)
