"""Frames of a spool: a batch of a named writer as it lies on the application's own disk.

Layout of a frame, little-endian:

    0  magic "GLSP"           20  number of the frame u64
    4  CRC32C of the rest     28  seq of the first record i64
    8  length of the rest     36  seqs of the records: gaps (see `geolog.protocol.batch_seqs`)
    12 version u8, zero u8    ..  the sealed batch (see `geolog.wire.batch`)
    14 length of the gaps u16
    16 count of records u32

A frame is written and synced alone, before the next one is begun. So after a crash only the
last can be incomplete: what follows the last whole frame was never promised to anyone. Bytes
that are followed by a whole frame were promised, and are damaged.
"""

import struct

import attrs
from crc32c import crc32c

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.wire.batch import SealedBatch
from topology.errors import DamagedBytesError

MAGIC = b"GLSP"
VERSION = 1
_HEADER = struct.Struct("<4sIIBBHIQq")
HEADER_BYTES = _HEADER.size
_FRONT_BYTES = 12
"""Bytes before those that the length counts."""
_CHECKED_FROM = 8
_MARK = struct.Struct("<IIQQ")
MARK_BYTES = _MARK.size


@attrs.frozen
class SpoolFrame:
    """A frame that was found whole."""

    number: int
    seqs: BatchSeqs
    offset: int
    """Where it begins in its file."""
    length_bytes: int
    sealed: memoryview = attrs.field(repr=False, eq=False)


@attrs.frozen
class SpoolScan:
    """The frames in the bytes of one file, and what is wrong with the bytes behind them."""

    frames: tuple[SpoolFrame, ...]
    whole_bytes: int
    """Length of the frames that lie at the front, one behind the other."""
    fault: str | None
    """The fault of the bytes at `whole_bytes`; None if there are none."""
    is_torn: bool
    """Whether no whole frame follows the fault: a crash cut the last write off."""


@attrs.frozen
class SpoolMark:
    """How far a spool is answered: all frames below `frame`, and its rows below `row`."""

    frame: int = 0
    row: int = 0


def encode_frame(number: int, seqs: BatchSeqs, sealed: SealedBatch) -> bytes:
    """The bytes of a frame."""
    length = HEADER_BYTES - _FRONT_BYTES + len(seqs.gaps) + sealed.length_bytes
    front = _HEADER.pack(
        MAGIC, 0, length, VERSION, 0, len(seqs.gaps), seqs.count, number, seqs.first
    )
    rest = b"".join((front[_CHECKED_FROM:], seqs.gaps, sealed.data))
    return b"".join((MAGIC, crc32c(rest).to_bytes(4, "little"), rest))


def decode_frame(data: bytes | memoryview, offset: int = 0) -> SpoolFrame:
    """The frame that begins here. DamagedBytesError."""
    view = memoryview(data)
    if len(view) - offset < HEADER_BYTES:
        raise DamagedBytesError(f"cut off after {len(view) - offset} bytes, within a header")
    magic, crc, length, version, zero, gaps_bytes, count, number, first = _HEADER.unpack_from(
        view, offset
    )
    if magic != MAGIC:
        raise DamagedBytesError(f"begins with {magic!r} instead of {MAGIC!r}")
    end = offset + _FRONT_BYTES + length
    gaps_end = offset + HEADER_BYTES + gaps_bytes
    if not gaps_end < end <= len(view):
        raise DamagedBytesError(f"has {len(view) - offset} bytes; its header says {length}")
    if crc32c(view[offset + _CHECKED_FROM : end]) != crc:
        raise DamagedBytesError("does not match its checksum")
    if version != VERSION or zero:
        raise DamagedBytesError(f"has the unknown version {version}")
    seqs = BatchSeqs(first, count, bytes(view[offset + HEADER_BYTES : gaps_end]))
    fault = seqs.fault()
    if fault is not None:
        raise DamagedBytesError(fault)
    return SpoolFrame(number, seqs, offset, end - offset, view[gaps_end:end])


def scan_frames(data: bytes | memoryview) -> SpoolScan:
    """Find the frames of a file, and those behind damaged bytes too."""
    found: list[SpoolFrame] = []
    data = bytes(data)  # Once: values may hold the magic any number of times.
    offset, fault, whole_bytes = 0, None, None
    while offset < len(data):
        try:
            frame = decode_frame(data, offset)
        except DamagedBytesError as error:
            if fault is None:
                fault, whole_bytes = str(error), offset
            offset = data.find(MAGIC, offset + 1)
            if offset < 0:
                break
            continue
        found.append(frame)
        offset += frame.length_bytes
    if fault is None:
        return SpoolScan(tuple(found), len(data), None, is_torn=False)
    assert whole_bytes is not None
    is_torn = not found or found[-1].offset < whole_bytes
    return SpoolScan(tuple(found), whole_bytes, fault, is_torn=is_torn)


def encode_mark(mark: SpoolMark) -> bytes:
    """The bytes of a mark."""
    rest = _MARK.pack(0, VERSION, mark.frame, mark.row)[4:]
    return crc32c(rest).to_bytes(4, "little") + rest


def decode_marks(data: bytes) -> SpoolMark:
    """The furthest whole mark in these slots: the last write may have been cut off."""
    found = [SpoolMark()]
    for start in range(0, len(data) - MARK_BYTES + 1, MARK_BYTES):
        crc, version, frame, row = _MARK.unpack_from(data, start)
        if crc32c(data[start + 4 : start + MARK_BYTES]) == crc and version == VERSION:
            found.append(SpoolMark(frame, row))
    return max(found, key=lambda mark: (mark.frame, mark.row))
