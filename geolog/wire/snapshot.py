"""The snapshot of a partition's state, as control entries hold it.

A snapshot is a run of control entries, one after the other, each with one batch. The first
record of each batch gives its part number, the number of parts, and the state of the partition
itself. Each further record has a writer's id as its key and its state as its value. Layout of
the values, little-endian:

    first record                        a writer
    0  version u8                       0  writer epoch u64
    1  has a transaction id u8          8  highest seq i64
    2  part u16, from 0                 16 last append time i64, µs UTC
    4  parts in all u16                 24 count of batches u8
    6  zero u16                         25 a line per batch, then the gaps of all batches,
    8  highest transaction id i64          then a line per generation,
    16 bytes of all batches so far i64     then the nonce of the epoch, 16 bytes
    24 local-only records so far i64

A line of a batch: first seq i64, first sequence u64, segment u64, entry u64, record count u32,
slot u32, header CRC32C u32, body CRC32C u32, length of the gaps between its seqs u16. A line of
a generation: partitions u16, highest seq i64. Version 1 had no nonces; its snapshots open with
`NO_NONCE`. Only version 3 has the number of local-only records; without any it is version 2.
"""

import struct
from collections.abc import Iterable

import attrs

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.generations import Generation
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import (
    BATCHES_REMEMBERED,
    PartitionState,
    WriterState,
    WrittenBatch,
    writers_in_order,
)
from geolog.protocol.writer_standing import NO_NONCE
from geolog.wire.batch import Batch, SealedBatch, seal_batch
from geolog.wire.limits import WRITER_ID_BYTES_MAX
from topology.errors import DamagedBytesError

VERSION = 2
_VERSION_WITHOUT_NONCES = 1
_VERSION_WITH_LOCAL_ONLY = 3

_FIRST = struct.Struct("<BBHHHqq")
_LOCAL_ONLY = struct.Struct("<q")
_WRITER = struct.Struct("<QqqB")
_BATCH = struct.Struct("<qQQQIIIIH")
_GENERATION = struct.Struct("<Hq")
_NONCE_BYTES = 16

_PART_BYTES = 3 << 20
"""Approximate size of the writers in one part: half a MiB more still fits a batch."""

_ROW_BYTES = 32
"""Generous overhead of a record in its batch, besides its key and value."""


def seal_snapshot(state: PartitionState, *, now_us: int) -> list[SealedBatch]:
    """The batches of the snapshot: one per control entry, with nothing else between them."""
    parts = _parts(state)
    return [
        seal_batch(
            [_first(state, part, len(parts)), *(data for _, data in some)],
            keys=[None, *(name for name, _ in some)],
            created_us=now_us,
        )
        for part, some in enumerate(parts)
    ]


def _parts(state: PartitionState) -> list[list[tuple[bytes, bytes]]]:
    """The writers' ids and bytes, in order, as many together as one batch can hold."""
    parts: list[list[tuple[bytes, bytes]]] = [[]]
    part_bytes = 0
    for name, writer in writers_in_order(state.writers):
        data = _writer_bytes(writer)
        if part_bytes > _PART_BYTES:
            parts.append([])
            part_bytes = 0
        parts[-1].append((name, data))
        part_bytes += len(name) + len(data) + _ROW_BYTES
    return parts


def _first(state: PartitionState, part: int, parts: int) -> bytes:
    has_one = state.transaction_id is not None
    transaction_id = state.transaction_id or 0
    count = state.local_only_count
    version = _VERSION_WITH_LOCAL_ONLY if count else VERSION
    fixed = _FIRST.pack(version, has_one, part, parts, 0, transaction_id, state.size_bytes)
    return fixed + _LOCAL_ONLY.pack(count) if count else fixed


def _writer_bytes(writer: WriterState) -> bytes:
    fixed = _WRITER.pack(
        writer.epoch, writer.seq_highest, writer.last_append_us, len(writer.batches)
    )
    lines = (
        _BATCH.pack(
            one.seqs.first, one.first_sequence, one.segment, one.entry,
            one.record_count, one.slot, one.header_crc, one.body_crc, len(one.seqs.gaps),
        )
        for one in writer.batches
    )  # fmt: skip
    gaps = (one.seqs.gaps for one in writer.batches)
    generations = (
        _GENERATION.pack(one.partitions, one.seq_highest) for one in writer.generations
    )
    nonce = writer.nonce.to_bytes(_NONCE_BYTES, "little")
    return b"".join([fixed, *lines, *gaps, *generations, nonce])


def snapshot_part(batch: Batch) -> tuple[int, int]:
    """The part number and the number of parts in a control entry's batch. DamagedBytesError."""
    first = _open_first(batch)
    return first.part, first.parts


@attrs.frozen
class _First:
    """The first record of a part."""

    version: int
    part: int
    parts: int
    transaction_id: int | None
    size_bytes: int
    local_only_count: int


def _open_first(batch: Batch) -> _First:
    first = batch.value(0)
    if len(first) < _FIRST.size:
        raise DamagedBytesError(f"a snapshot begins with {len(first)} bytes")
    (
        version, has_one, part, parts, reserved, transaction_id, size_bytes
    ) = _FIRST.unpack_from(first)  # fmt: skip
    if version not in (VERSION, _VERSION_WITHOUT_NONCES, _VERSION_WITH_LOCAL_ONLY):
        raise DamagedBytesError(f"unknown version {version} of snapshots")
    counted_bytes = _LOCAL_ONLY.size if version == _VERSION_WITH_LOCAL_ONLY else 0
    if len(first) != _FIRST.size + counted_bytes:
        raise DamagedBytesError(f"a snapshot begins with {len(first)} bytes")
    local_only_count = _LOCAL_ONLY.unpack_from(first, _FIRST.size)[0] if counted_bytes else 0
    if part >= parts or reserved or has_one > 1 or min(size_bytes, local_only_count) < 0:
        raise DamagedBytesError(f"impossible part {part} of {parts} of a snapshot")
    return _First(
        version,
        part,
        parts,
        transaction_id if has_one else None,
        size_bytes,
        local_only_count,
    )


def open_snapshot(
    batches: Iterable[Batch], *, sequence_next: Sequence, append_time_us: int
) -> PartitionState:
    """Decode the state from the parts of a snapshot, in order. DamagedBytesError.

    The headers of its entries say where it is.
    """
    state = PartitionState(sequence_next, append_time_us)
    expected = 0
    parts = 1
    for batch in batches:
        first = _open_first(batch)
        if first.part != expected:
            raise DamagedBytesError(
                f"part {first.part} of a snapshot, expected part {expected}"
            )
        parts, expected = first.parts, expected + 1
        state.transaction_id, state.size_bytes = first.transaction_id, first.size_bytes
        state.local_only_count = first.local_only_count
        for row in range(1, len(batch)):
            writer_id = batch.key(row)
            if not writer_id or len(writer_id) > WRITER_ID_BYTES_MAX:
                raise DamagedBytesError(f"invalid writer id in a snapshot: {writer_id!r}")
            state.writers[writer_id] = _open_writer(batch.value(row), first.version)
    if expected != parts:
        raise DamagedBytesError(f"a snapshot of {parts} parts has {expected}")
    return state


def _open_writer(data: bytes, version: int) -> WriterState:
    nonce_bytes = 0 if version == _VERSION_WITHOUT_NONCES else _NONCE_BYTES
    if len(data) < _WRITER.size + nonce_bytes:
        raise DamagedBytesError(f"writer state truncated to {len(data)} bytes")
    nonce = NO_NONCE
    if nonce_bytes:
        nonce = int.from_bytes(data[-nonce_bytes:], "little")
        data = data[:-nonce_bytes]
    epoch, seq_highest, last_append_us, count = _WRITER.unpack_from(data)
    lines_end = _WRITER.size + count * _BATCH.size
    if count > BATCHES_REMEMBERED or lines_end > len(data):
        raise DamagedBytesError(f"a writer's state of {len(data)} bytes has {count} batches")
    batches, batches_end = _open_batches(data, lines_end)
    if batches_end > len(data) or (len(data) - batches_end) % _GENERATION.size:
        raise DamagedBytesError(f"writer state truncated to {len(data)} bytes")
    generations = tuple(Generation(*one) for one in _GENERATION.iter_unpack(data[batches_end:]))
    return WriterState(epoch, seq_highest, last_append_us, batches, generations, nonce)


def _open_batches(data: bytes, lines_end: int) -> tuple[tuple[WrittenBatch, ...], int]:
    """The batches of a writer, and where they end."""
    batches = []
    position = lines_end
    for (
        first, first_sequence, segment, entry, count, slot, header_crc, body_crc, gaps_length
    ) in _BATCH.iter_unpack(data[_WRITER.size : lines_end]):  # fmt: skip
        seqs = BatchSeqs(first, count, data[position : position + gaps_length])
        position += gaps_length
        fault = seqs.fault()
        if fault is not None:
            raise DamagedBytesError(f"invalid batch in a snapshot: {fault}")
        sequence = Sequence(first_sequence)
        batches.append(WrittenBatch(seqs, segment, entry, slot, sequence, header_crc, body_crc))
    return tuple(batches), position
