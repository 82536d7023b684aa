"""The rows of one ledger in a growing table: sorted as they come, except for late ones.

Theory of operation. Nearly all entries come in order, and are appended to bytes that are sorted
already. A late entry (sent again, brought by a repair, or moved by compaction after newer ones)
waits apart, and is merged in when the table is sealed. The merge goes in pieces, so that nobody
waits for the rows of a whole file. A new row of an existing entry replaces the old one.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from struct import Struct

ENTRY_ROW = Struct("<QQQII")
"""Ledger, entry, offset, length, checksum."""
ROW_BYTES = ENTRY_ROW.size

_ENTRY = Struct("<8xQ")
_LATE_HELD_BYTES = 200
"""Memory of a row that waits to be merged."""


class LedgerRows:
    """Invariant: an entry is in `_ordered` or in `_late`, never in both."""

    __slots__ = ("_first", "_last", "_late", "_ordered")

    def __init__(self) -> None:
        self._ordered = bytearray()
        self._late: dict[int, bytes] = {}
        self._first = self._last = -1

    def __len__(self) -> int:
        return len(self._ordered) // ROW_BYTES + len(self._late)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the rows."""
        return len(self._ordered) + _LATE_HELD_BYTES * len(self._late)

    def put(self, entry: int, row: bytes) -> bool:
        """Insert a row; whether its entry is new here."""
        if entry > self._last:
            if not self._ordered:
                self._first = entry
            self._last = entry
            self._ordered += row
            return True
        at = self._find_ordered(entry)
        if at >= 0:
            self._ordered[at : at + ROW_BYTES] = row
            return False
        is_new = entry not in self._late
        self._late[entry] = row
        return is_new

    def find(self, entry: int) -> bytes | bytearray | None:
        """The row of an entry; None if absent."""
        at = self._find_ordered(entry)
        return self._ordered[at : at + ROW_BYTES] if at >= 0 else self._late.get(entry)

    def pieces(self, rows_max: int) -> Iterator[bytes | memoryview]:
        """All rows, sorted, in pieces of at most `rows_max`; some pieces are empty.

        No row may be inserted meanwhile.
        """
        row = 0
        runs: list[list[int]] = []
        unsorted = iter(self._late)
        while run := sorted(islice(unsorted, rows_max)):
            runs.append(run)
            yield b""
        for entry in merge(*runs):
            end = self._first_above(entry, row)
            yield from self._slices(row, end, rows_max)
            yield self._late[entry]
            row = end
        yield from self._slices(row, len(self._ordered) // ROW_BYTES, rows_max)

    def _slices(self, row: int, end: int, rows_max: int) -> Iterator[memoryview]:
        for first in range(row, end, rows_max):
            with memoryview(self._ordered) as ordered:
                yield ordered[first * ROW_BYTES : min(first + rows_max, end) * ROW_BYTES]

    def _find_ordered(self, entry: int) -> int:
        """Offset of the row of an entry; -1 if it is not among those in order."""
        if not self._first <= entry <= self._last:
            return -1
        # Entries are evenly spaced, most of the time: nearly always this is the one.
        last_row = len(self._ordered) // ROW_BYTES - 1
        span = self._last - self._first
        guess = (entry - self._first) * last_row // span if span else 0
        if self._entry_at(guess) == entry:
            return guess * ROW_BYTES
        row = self._first_above(entry - 1, 0)
        return row * ROW_BYTES if self._entry_at(row) == entry else -1

    def _first_above(self, entry: int, row: int) -> int:
        """The first row at or after `row` of a higher entry; by doubling, then halving."""
        step, count = 1, len(self._ordered) // ROW_BYTES
        if row >= count or self._entry_at(row) > entry:
            return row
        while row + step < count and self._entry_at(row + step) <= entry:
            step *= 2
        low, high = row + step // 2, min(row + step, count)
        while low < high:
            middle = (low + high) // 2
            if self._entry_at(middle) <= entry:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry_at(self, row: int) -> int:
        entry: int = _ENTRY.unpack_from(self._ordered, row * ROW_BYTES)[0]
        return entry
