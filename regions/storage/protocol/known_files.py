"""Which journal files a node has, how long each must be, and which were taken away on purpose.

Theory of operation. Files are numbered from 1 without holes, so each number up to the newest is
either a file that is there, or one that was retired: its live entries were copied, that was
synced, and only then was it removed. Any other number is a file that was lost. What is
known of the files stands in each table, so that it outlives the files that said it first.

Rules: PROTOCOL J9.
"""

from collections.abc import Iterable, Iterator

import attrs

from regions.storage.protocol.intervals import IntervalSet


@attrs.frozen
class FileRow:
    """What is promised of one journal file that is written no more."""

    file_id: int
    length_bytes: int
    """How much of it is on disk for sure: all of it if it was sealed."""
    table_crc: int
    """Checksum of the table at its end; 0 if a crash ended it, so that it has none there."""


class KnownFiles:
    """The files behind the open one.

    A file may be there and be retired: then the process ended before it was removed.
    """

    def __init__(self) -> None:
        self._rows: dict[int, FileRow] = {}
        self.retired = IntervalSet()

    def __repr__(self) -> str:
        return f"KnownFiles({len(self._rows)} files, retired {self.retired})"

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, file_id: int) -> FileRow | None:
        """The file's row; None if it is retired, lost, or the open one."""
        return self._rows.get(file_id)

    def keep(self, row: FileRow) -> None:
        """A file is there, and written no more."""
        self._rows[row.file_id] = row

    def retire(self, file_id: int) -> None:
        """The file may go: nothing in it is needed."""
        self._rows.pop(file_id, None)
        self.retired.add(file_id)

    def on_table(self, retired: Iterable[tuple[int, int]]) -> None:
        """Replay what a table says of retired files."""
        self.retired.update(retired)

    def lost(self, newest: int, *, table_newest: int) -> Iterator[tuple[int, int]]:
        """Ids up to `newest` of files that are neither there nor retired, as intervals.

        That a file is retired counts only if it is older than an intact table, because what was
        promised in it, epochs and fences, must stand somewhere.
        """
        accounted = IntervalSet((file_id, file_id) for file_id in self._rows)
        for first, last in self.retired:
            if first < table_newest:
                accounted.add(first, min(last, table_newest - 1))
        return accounted.missing(1, newest)

    def rows(self) -> Iterator[FileRow]:
        """What a table says of the files before its own, in order of their ids."""
        for file_id in sorted(self._rows):
            yield self._rows[file_id]


def merged_rows(rows: Iterable[FileRow]) -> dict[int, FileRow]:
    """All that is promised of each file, by whatever later file or table says it."""
    merged: dict[int, FileRow] = {}
    for row in rows:
        before = merged.setdefault(row.file_id, row)
        merged[row.file_id] = FileRow(
            row.file_id,
            max(before.length_bytes, row.length_bytes),
            row.table_crc or before.table_crc,
        )
    return merged
