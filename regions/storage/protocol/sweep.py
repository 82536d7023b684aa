"""A sealed file's entries ordered by offset, for a reader of all of them.

The table is sorted by ledger and entry. Reading in that order would jump to and fro between
ledgers that were written at the same time. So the rows are first sorted into windows of the
file. That is done in steps, because a file may have a million rows.
"""

from array import array
from collections.abc import Iterator

from regions.storage.protocol.tables import EntryRow, SealedTable


class Sweep:
    """One walk over a file: `prepare` to its end, then `windows`.

    A file whose end is gone may have entries in the table beyond its end; those come last.
    """

    def __init__(self, table: SealedTable, *, size_bytes: int, window_bytes: int) -> None:
        self._table = table
        self._window_bytes = window_bytes
        self._windows = [array("I") for _ in range(size_bytes // window_bytes + 1)]

    def __repr__(self) -> str:
        return f"Sweep({len(self._table)} entries in {len(self._windows)} windows)"

    def prepare(self, *, step: int) -> Iterator[int]:
        """Sort the rows into windows, `step` of them at a time; yields how many."""
        count, last = len(self._table), len(self._windows) - 1
        for first in range(0, count, step):
            end = min(first + step, count)
            for row in range(first, end):
                window = self._table.offset(row) // self._window_bytes
                self._windows[min(window, last)].append(row)
            yield end - first

    def windows(self, *, rows_max: int) -> Iterator[list[EntryRow]]:
        """All entries ordered by offset, in groups of neighbours of at most `rows_max`."""
        for window in self._windows:
            rows = sorted((self._table.row(at) for at in window), key=_offset_of)
            for first in range(0, len(rows), rows_max):
                yield rows[first : first + rows_max]


def _offset_of(row: EntryRow) -> int:
    return row.place.offset
