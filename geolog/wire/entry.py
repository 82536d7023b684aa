"""The entry, the unit of replication: a header, and one or more sealed batches.

The header holds the values assigned by the log's owner; its checksum covers them and the
checksums of the batches. It excludes everything that varies per send (LAC, instance, ordinal,
the number of the ledger): a mirror stores the same bytes under a ledger of its own. Layout,
little-endian:

    0  magic "GLEN"         16 length of the body u32      40 segment u64
    4  header CRC32C u32    20 record count u32            48 entry u64
    8  version u8           24 batch count u32             56 first sequence u64
    9  kind u8              28 zero u32                    64 append time i64, µs UTC
    10 flags u16            32 home epoch u64              72 a line per batch
    12 length of header u32                                   then the batches

and each line, padded with zeros to 8 bytes:

    0  length u32           8  header CRC32C u32           16 writer epoch u32
    4  record count u32     12 body CRC32C u32             20 length of the gaps u16
                                                           22 partitions divided among u16
                                                           24 first writer seq i64, -1: none
                                                           32 length of writer id u8, writer id
                                                              then the gaps between its seqs

The header's checksum covers it from byte 8 on. Flag 1: the entry is local-only, so its batches
stay in the region in which it was appended. Elsewhere its placeholder stands for it: the header
alone, the same from byte 4 on, with magic "GLEP".

Rules: PROTOCOL H26 and S3.
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import attrs
from crc32c import crc32c

from geolog.protocol.batch_seqs import GAPS_BYTES_MAX, BatchSeqs
from geolog.protocol.ids import SegmentEntry
from geolog.wire.batch import (
    Batch,
    BatchHeader,
    Columns,
    SealedBatch,
    open_verified_batch,
    peek_batch_header,
    verify_body,
)
from geolog.wire.limits import (
    BATCHES_PER_ENTRY_MAX,
    ENTRY_BYTES_MAX,
    INT64_MAX,
    WRITER_ID_BYTES_MAX,
)
from topology.errors import DamagedBytesError, InvalidArgumentError, TooLargeError

MAGIC = b"GLEN"
MAGIC_PLACEHOLDER = b"GLEP"
VERSION = 1

_LOCAL_ONLY = 1

_FIXED = struct.Struct("<4sIBBHIIIIIQQQQq")
_LINE = struct.Struct("<IIIIIHHqB")
_CRC = struct.Struct("<I")
_HEADER_CRC_AT = 4
_CHECKED_FROM = 8
_NO_WRITER = (0, 0, -1, b"")
_EPOCH_MAX = (1 << 32) - 1
_PARTITIONS_MAX = (1 << 15) - 1
_ZEROS = bytes(8)


class EntryKind(enum.IntEnum):
    """DATA: records of the stream. CONTROL: the log's own notes, which take no sequence."""

    DATA = 1
    CONTROL = 2


_KINDS = {int(kind): kind for kind in EntryKind}


@attrs.frozen
class WriterStamp:
    """The sealer of a batch, for exactly-once: the writer, its epoch, and its records' seqs."""

    writer_id: bytes
    epoch: int
    seqs: BatchSeqs
    partitions: int = 0
    """Number of partitions that the writer divides its records among; 0 if it chose one."""


@attrs.frozen
class BatchLine:
    """An entry header's description of one of its batches."""

    length_bytes: int
    record_count: int
    header_crc: int
    body_crc: int
    writer: WriterStamp | None


@attrs.frozen
class EntryHeader:
    """The values the owner assigned. The append time never decreases from entry to entry."""

    kind: EntryKind
    home_epoch: int
    segment: int
    entry: SegmentEntry
    first_sequence: int
    append_time_us: int
    record_count: int
    lines: tuple[BatchLine, ...]
    header_bytes: int
    body_bytes: int
    """Length of the batches, also if only a placeholder is here."""
    is_local_only: bool = False
    """Whether the batches stay in the region in which the entry was appended."""
    is_placeholder: bool = False
    """Whether the batches are not here."""

    @property
    def length_bytes(self) -> int:
        """Length of the whole entry, as it is here."""
        return self.header_bytes + (0 if self.is_placeholder else self.body_bytes)

    @property
    def next_sequence(self) -> int:
        """The first sequence after this entry: control entries take none."""
        taken = self.record_count if self.kind is EntryKind.DATA else 0
        return self.first_sequence + taken


@attrs.frozen(eq=False)
class EncodedEntry:
    """An entry ready to send: its bytes are `buffers` in order, `crc` their CRC32C."""

    header: EntryHeader
    buffers: tuple[bytes | memoryview, ...] = attrs.field(repr=False)
    crc: int

    @property
    def length_bytes(self) -> int:
        """Length of the whole entry."""
        return self.header.length_bytes

    @property
    def header_crc(self) -> int:
        """The checksum of its header, which covers the checksums of its batches."""
        return _header_crc(self.buffers[0])

    def as_relayed(self) -> "EncodedEntry":
        """The entry as it may leave its region: as it is, or its placeholder if local-only."""
        if not self.header.is_local_only or self.header.is_placeholder:
            return self
        header = attrs.evolve(self.header, is_placeholder=True)
        front = bytes(self.buffers[0][: header.header_bytes])
        data = MAGIC_PLACEHOLDER + front[len(MAGIC_PLACEHOLDER) :]
        return EncodedEntry(header, (data,), crc32c(data))

    def join(self) -> bytes:
        """The entry in one piece."""
        return b"".join(self.buffers)


@attrs.define(eq=False)
class Entry:
    """A decoded entry: the headers were checked; its batches are opened on demand.

    Its bytes never change, so each is checked once: by `verify`, or when its batch is opened.
    """

    header: EntryHeader
    batch_headers: tuple[BatchHeader, ...] = attrs.field(repr=False)
    batch_views: tuple[memoryview, ...] = attrs.field(repr=False)
    data: memoryview = attrs.field(repr=False)
    """The whole entry, as it is stored."""
    _is_verified: bool = attrs.field(init=False, default=False, repr=False)
    _opened: dict[int, Batch] = attrs.field(init=False, factory=dict, repr=False)

    def open(self, index: int) -> Batch:
        """Check and open one batch; a placeholder has none. DamagedBytesError."""
        assert not self.header.is_placeholder, "a placeholder has no batches"
        header, view = self.batch_headers[index], self.batch_views[index]
        if not self._is_verified:
            verify_body(header, view)
        return open_verified_batch(header, view)

    def opened(self, index: int) -> Batch:
        """One batch, opened once for all that have this entry. DamagedBytesError."""
        batch = self._opened.get(index)
        if batch is None:
            batch = self._opened[index] = self.open(index)
        return batch

    @property
    def header_crc(self) -> int:
        """The checksum of its header, which covers the checksums of its batches."""
        return _header_crc(self.data)

    @property
    def raw_bytes(self) -> int:
        """Length of all batches, unpacked; of a placeholder, that of the placeholder."""
        if self.header.is_placeholder:
            return self.header.header_bytes
        return sum(header.raw_bytes for header in self.batch_headers)

    def columns(self, index: int) -> Columns:
        """The optional columns of a batch, without opening it."""
        return self.batch_headers[index].columns

    def highest_transaction_id(self) -> int | None:
        """The highest transaction id in it, if a record has one; ids rise."""
        for index in reversed(range(len(self.batch_views))):
            if Columns.TRANSACTION_IDS not in self.columns(index):
                continue
            batch = self.open(index)
            for row in reversed(range(len(batch))):
                found = batch.transaction_id(row)
                if found is not None:
                    return found
        return None

    def verify(self) -> None:
        """Check the bytes of all batches, without opening them. DamagedBytesError."""
        if not self._is_verified:
            for header, view in zip(self.batch_headers, self.batch_views, strict=True):
                verify_body(header, view)
            self._is_verified = True

    def is_same_as(self, other: "Entry") -> bool:
        """Whether both are the same entry, byte for byte; or a placeholder of the other.

        Equal headers have equal checksums of the batches.
        """
        if self.header.is_placeholder or other.header.is_placeholder:
            mine, others = self.header.header_bytes, other.header.header_bytes
            magic = len(MAGIC)
            return bool(self.data[magic:mine] == other.data[magic:others])
        return self.data == other.data

    def records(self) -> Iterator[tuple[int, Batch, int]]:
        """All records in order, as (slot, batch, row): slots count through the whole entry.

        A placeholder gives none.
        """
        slot = 0
        for index in range(len(self.batch_views)):
            batch = self.open(index)
            for row in range(len(batch)):
                yield slot, batch, row
                slot += 1


def encode_entry(
    batches: Sequence[SealedBatch],
    *,
    home_epoch: int,
    segment: int,
    entry: int,
    first_sequence: int,
    append_time_us: int,
    kind: EntryKind = EntryKind.DATA,
    writers: Sequence[WriterStamp | None] | None = None,
    is_local_only: bool = False,
) -> EncodedEntry:
    """Put sealed batches, with the stamp of each, into one entry; the batches are not copied.

    is_local_only: the batches must not leave the region.
    TooLargeError for an entry over its limit, InvalidArgumentError for numbers out of range.
    """
    stamps = [None] * len(batches) if writers is None else writers
    lines = [_encode_line(batch, writer) for batch, writer in zip(batches, stamps, strict=True)]
    header = EntryHeader(
        kind,
        home_epoch,
        segment,
        SegmentEntry(entry),
        first_sequence,
        append_time_us,
        record_count=sum(batch.record_count for batch in batches),
        lines=tuple(line for line, _ in lines),
        header_bytes=_FIXED.size + sum(len(data) for _, data in lines),
        body_bytes=sum(batch.length_bytes for batch in batches),
        is_local_only=is_local_only,
    )
    fault = _fault_of(header)
    if fault:
        raise InvalidArgumentError(fault)
    if header.length_bytes > ENTRY_BYTES_MAX:
        raise TooLargeError(
            f"an entry of {header.length_bytes} bytes is over the limit of {ENTRY_BYTES_MAX}"
        )
    front = _encode_header(header, [data for _, data in lines])
    crc = crc32c(front)
    for batch in batches:
        crc = crc32c(batch.data, crc)
    return EncodedEntry(header, (front, *(batch.data for batch in batches)), crc)


def decode_entry_header(data: bytes | memoryview) -> EntryHeader:
    """Parse the header at the front of `data`, ignoring the rest.

    DamagedBytesError. No length is trusted before the header's checksum was compared.
    """
    if len(data) < _FIXED.size:
        raise DamagedBytesError(f"entry truncated to {len(data)} bytes, within its header")
    (
        magic, header_crc, version, kind, flags, header_bytes, body_bytes,
        record_count, batch_count, reserved_too,
        home_epoch, segment, entry, first_sequence, append_time_us,
    ) = _FIXED.unpack_from(data)  # fmt: skip
    is_placeholder = magic == MAGIC_PLACEHOLDER
    if magic != MAGIC and not is_placeholder:
        raise DamagedBytesError(f"an entry begins with {magic!r} instead of {MAGIC!r}")
    if not _FIXED.size < header_bytes <= min(len(data), ENTRY_BYTES_MAX):
        raise DamagedBytesError(f"impossible header length of an entry: {header_bytes} bytes")
    if crc32c(data[_CHECKED_FROM:header_bytes]) != header_crc:
        raise DamagedBytesError("the header of an entry does not match its checksum")
    if version != VERSION:
        raise DamagedBytesError(f"unknown version {version} of the entry format")
    if kind not in _KINDS or flags & ~_LOCAL_ONLY or reserved_too:
        raise DamagedBytesError(f"unknown entry kind {kind}, flags {flags}")
    header = EntryHeader(
        _KINDS[kind],
        home_epoch,
        segment,
        entry,
        first_sequence,
        append_time_us,
        record_count,
        _decode_lines(bytes(data[_FIXED.size : header_bytes]), batch_count),
        header_bytes,
        body_bytes,
        bool(flags & _LOCAL_ONLY),
        is_placeholder,
    )
    fault = _fault_of(header) or _fault_of_sums(header)
    if fault:
        raise DamagedBytesError(fault)
    return header


def decode_entry(data: bytes | memoryview) -> Entry:
    """Decode an entry: its header, and the header of each batch, must be intact.

    A placeholder has no batches.
    The bodies are checked by `Entry.verify`, and when a batch is opened. DamagedBytesError.
    """
    view = memoryview(data)
    header = decode_entry_header(view)
    if len(view) != header.length_bytes:
        raise DamagedBytesError(
            f"an entry has {len(view)} bytes, its header says {header.length_bytes}"
        )
    if header.is_placeholder:
        return Entry(header, (), (), view)
    lengths = (line.length_bytes for line in header.lines)
    ends = pairwise(accumulate(lengths, initial=header.header_bytes))
    views = tuple(view[start:end] for start, end in ends)
    batches = tuple(map(_checked_batch_header, header.lines, views))
    return Entry(header, batches, views, view)


def _header_crc(data: bytes | memoryview) -> int:
    found: int = _CRC.unpack_from(data, _HEADER_CRC_AT)[0]
    return found


def _checked_batch_header(line: BatchLine, view: memoryview) -> BatchHeader:
    batch = peek_batch_header(view)
    found = (batch.length_bytes, batch.record_count, batch.header_crc, batch.body_crc)
    if found != (line.length_bytes, line.record_count, line.header_crc, line.body_crc):
        raise DamagedBytesError("a batch does not match its line in the entry's header")
    return batch


def _encode_line(batch: SealedBatch, writer: WriterStamp | None) -> tuple[BatchLine, bytes]:
    line = BatchLine(
        batch.length_bytes, batch.record_count, batch.header_crc, batch.body_crc, writer
    )
    epoch, partitions, seq, writer_id = _NO_WRITER
    gaps = b""
    if writer is not None:
        _check_stamp(writer, batch.record_count)
        epoch, partitions = writer.epoch, writer.partitions
        seq, gaps, writer_id = writer.seqs.first, writer.seqs.gaps, writer.writer_id
    data = _LINE.pack(
        batch.length_bytes, batch.record_count, batch.header_crc, batch.body_crc,
        epoch, len(gaps), partitions, seq, len(writer_id),
    ) + writer_id + gaps  # fmt: skip
    return line, data + _ZEROS[: -len(data) % 8]


def _check_stamp(writer: WriterStamp, record_count: int) -> None:
    is_possible = (
        0 <= writer.epoch <= _EPOCH_MAX
        and writer.seqs.count == record_count
        and writer.seqs.fault() is None
        and 0 <= writer.partitions <= _PARTITIONS_MAX
        and 0 < len(writer.writer_id) <= WRITER_ID_BYTES_MAX
    )
    if not is_possible:
        raise InvalidArgumentError(f"{writer} is not a valid stamp for {record_count} records")


def _decode_lines(data: bytes, batch_count: int) -> tuple[BatchLine, ...]:
    lines = []
    position = 0
    while position < len(data):
        line, position = _decode_line(data, position)
        lines.append(line)
    if len(lines) != batch_count:
        raise DamagedBytesError(f"an entry of {batch_count} batches describes {len(lines)}")
    return tuple(lines)


def _decode_line(data: bytes, start: int) -> tuple[BatchLine, int]:
    id_start = start + _LINE.size
    if id_start > len(data):
        raise DamagedBytesError("truncated line in an entry's header")
    (
        length_bytes, record_count, header_crc, body_crc,
        epoch, gaps_length, partitions, seq, id_length,
    ) = _LINE.unpack_from(data, start)  # fmt: skip
    id_end = id_start + id_length
    gaps_end = id_end + gaps_length
    end = gaps_end + -gaps_end % 8  # Lines are aligned to 8 bytes.
    if end > len(data) or any(data[gaps_end:end]):
        raise DamagedBytesError("bad padding of a line in an entry's header")
    writer_id = data[id_start:id_end]
    writer = None
    if (epoch, partitions, seq, writer_id) != _NO_WRITER or gaps_length:
        if not writer_id or partitions > _PARTITIONS_MAX or gaps_length > GAPS_BYTES_MAX:
            raise DamagedBytesError(
                f"invalid writer stamp: id {writer_id!r}, epoch {epoch}, seq {seq}"
            )
        seqs = BatchSeqs(seq, record_count, data[id_end:gaps_end])
        fault = seqs.fault()
        if fault is not None:
            raise DamagedBytesError(f"invalid writer stamp: {fault}")
        writer = WriterStamp(writer_id, epoch, seqs, partitions)
    return BatchLine(length_bytes, record_count, header_crc, body_crc, writer), end


def _encode_header(header: EntryHeader, lines: list[bytes]) -> bytes:
    fixed = _FIXED.pack(
        MAGIC, 0, VERSION, header.kind, _LOCAL_ONLY * header.is_local_only,
        header.header_bytes, header.body_bytes,
        header.record_count, len(lines), 0,
        header.home_epoch, header.segment, header.entry,
        header.first_sequence, header.append_time_us,
    )  # fmt: skip
    checked = b"".join([fixed[_CHECKED_FROM:], *lines])
    return b"".join([MAGIC, _CRC.pack(crc32c(checked)), checked])


def _fault_of(header: EntryHeader) -> str | None:
    """Why these numbers are not a valid entry; None if they are."""
    if not 0 < len(header.lines) <= BATCHES_PER_ENTRY_MAX:
        return f"an entry must not have {len(header.lines)} batches"
    numbers = (
        header.home_epoch,
        header.segment - 1,  # Segments count from 1.
        header.entry,
        header.first_sequence,
    )
    if min(numbers) < 0 or max(numbers) > INT64_MAX - header.record_count:
        return (
            f"home epoch {header.home_epoch}, segment {header.segment}, entry {header.entry}, "
            f"first sequence {header.first_sequence}: not valid for an entry"
        )
    if header.is_local_only and header.kind is not EntryKind.DATA:
        return "only an entry of records can be local-only"
    if header.is_placeholder and not header.is_local_only:
        return "only a local-only entry can have a placeholder"
    if not -INT64_MAX <= header.append_time_us <= INT64_MAX:
        return f"invalid append time of an entry: {header.append_time_us}"
    return None


def _fault_of_sums(header: EntryHeader) -> str | None:
    """Why the header and its lines do not match; None if they do."""
    whole_bytes = header.header_bytes + header.body_bytes
    if whole_bytes > ENTRY_BYTES_MAX:
        return f"an entry of {whole_bytes} bytes is over the limit of {ENTRY_BYTES_MAX}"
    if sum(line.length_bytes for line in header.lines) != header.body_bytes:
        return "the batches of an entry do not add up to the length of its body"
    if sum(line.record_count for line in header.lines) != header.record_count:
        return "the batches of an entry do not add up to its record count"
    return None
