"""Walk a journal file from record to record, also past damage.

Theory of operation. The walk asks for windows of the file and gets their bytes. It steps from
header to header by the body's length, without looking at bodies. Where it finds no intact
header, it searches for the next one; the skipped bytes are a gap. A record found after a gap is
real: its checksum is seeded with the file's random salt and with the record's own offset.

The meaning of a gap depends on the highest mark, which is known only at the end: below it, rot;
above it, the tail that a crash tore, or space that was allocated and never written.

Rules: PROTOCOL J3.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import attrs

from regions.storage.protocol.records import (
    FLAG_LAST,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    JournalRecord,
    RecordCodec,
    RecordKind,
    unpack_proven,
)

WINDOW_BYTES = 1 << 20


@attrs.frozen
class HeaderGap:
    """Bytes without an intact record header."""

    start: int
    end: int


class JournalWalk:
    """The core. Ask for `window`, pass its bytes to `take`, until there is none."""

    def __init__(self, codec: RecordCodec, start: int, end: int) -> None:
        self._codec = codec
        self._at = start  # Where the next header should be, or where the search continues.
        self._end = end
        self._gap_start: int | None = None
        self._offsets = array("Q")
        self._headers = bytearray()
        self.gaps: list[HeaderGap] = []
        self.mark_offset = start
        """Offset of the highest mark, below which all was synced; else where the walk began."""
        self.is_sealed = False
        """Whether the highest mark says that only the table follows."""
        self.records_end = start
        """Where the last record ends by its own account; its body may be cut short."""
        self._examined_end = start  # Bytes after it were not examined.
        self._nonzero_end = start

    @property
    def content_end(self) -> int:
        """Everything after it is zero: space that was allocated, and never written."""
        if self._examined_end < self._end:
            return self._end
        return min(self._end, max(self.records_end, self._nonzero_end))

    def window(self) -> tuple[int, int] | None:
        """Offset and length of the bytes to read next; None at the end of the file."""
        if self._end - self._at < RECORD_HEADER_BYTES:
            self._close_gap(self._end)
            return None
        return self._at, min(WINDOW_BYTES, self._end - self._at)

    def take(self, offset: int, found: bytes) -> None:
        """Examine the bytes of the last `window`."""
        assert offset == self._at
        self._examined_end = offset + len(found)
        if content := found.rstrip(b"\0"):
            self._nonzero_end = offset + len(content)
        place = 0
        while 0 <= place <= len(found) - RECORD_HEADER_BYTES:
            header = found[place : place + RECORD_HEADER_BYTES]
            record = self._codec.unpack(offset + place, header)
            if record is None:
                place = self._search(offset, found, place)
                continue
            self._close_gap(offset + place)
            self._note(offset + place, record, header)
            place += RECORD_HEADER_BYTES + record.body_length
        if len(found) < RECORD_HEADER_BYTES:
            self._end = offset + len(found)  # The file is shorter than announced.
        self._at = offset + place

    def records(
        self, start: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, JournalRecord]]:
        """The records found that begin between `start` and `end`, each with its offset."""
        first = bisect_left(self._offsets, start)
        last = len(self._offsets) if end is None else bisect_left(self._offsets, end)
        for number in range(first, last):
            record = unpack_proven(self._headers, number * RECORD_HEADER_BYTES)
            assert record is not None
            yield self._offsets[number], record

    def _note(self, offset: int, record: JournalRecord, header: bytes) -> None:
        self._offsets.append(offset)
        self._headers += header
        self.records_end = offset + RECORD_HEADER_BYTES + record.body_length
        if record.kind is RecordKind.MARK:
            self.mark_offset = offset
            self.is_sealed = bool(record.flags & FLAG_LAST)

    def _search(self, offset: int, found: bytes, place: int) -> int:
        """Where in the window the next header may be."""
        if self._gap_start is None:
            self._gap_start = offset + place
        following = found.find(RECORD_MAGIC, place + 1)
        if following >= 0:
            return following
        # Keep what may be the first bytes of the magic, but always advance.
        return max(place + 1, len(found) - len(RECORD_MAGIC) + 1)

    def _close_gap(self, end: int) -> None:
        start = self._gap_start
        if start is None and end == self._end and self._at < end:
            start = self._at  # Less than a header remains at the end.
        if start is not None and start < end:
            self.gaps.append(HeaderGap(start, end))
        self._gap_start = None
