"""Read around what a disk cannot read: unreadable pages count as damaged bytes.

One bad sector makes a read of a megabyte fail. The bytes around it are then read page by page,
and the unreadable page becomes `FILLER`, which no checksum accepts in place of the original. So
every check treats an unreadable page exactly like an overwritten one.

Rules: PROTOCOL J19.
"""

import logging

import attrs

from regions.storage.disk import DiskFile, UnreadableError

_log = logging.getLogger(__name__)

PAGE_BYTES = 4096
"""The unit in which a kernel reads, or fails to read."""

FILLER = b"\xff"
"""Not zero: zeros at the end of a file mean space that was never written."""


@attrs.frozen
class Readable:
    """Bytes of a file, as far as they can be read."""

    content: bytes
    holes: tuple[tuple[int, int], ...] = ()
    """Where they cannot be read: begin and end of each page in the file."""


async def read_around(file: DiskFile, offset: int, length: int) -> Readable:
    """Read as `DiskFile.read` does, with `FILLER` for the pages that cannot be read."""
    try:
        return Readable(await file.read(offset, length))
    except UnreadableError as error:
        _log.error("%s; those bytes count as damaged", error)
    parts: list[bytes] = []
    holes: list[tuple[int, int]] = []
    at, end = offset, min(offset + length, file.size_bytes)
    while at < end:
        piece_bytes = min(PAGE_BYTES - at % PAGE_BYTES, end - at)
        try:
            parts.append(await file.read(at, piece_bytes))
        except UnreadableError:
            parts.append(FILLER * piece_bytes)
            holes.append((at, at + piece_bytes))
        at += piece_bytes
    return Readable(b"".join(parts), tuple(holes))


async def read_what_can_be(file: DiskFile, offset: int, length: int) -> bytes:
    """The same, for callers whose checksums detect the holes."""
    return (await read_around(file, offset, length)).content
