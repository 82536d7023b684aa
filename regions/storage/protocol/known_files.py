"""The journal files of a node: how long each must be, and which were removed on purpose.

Theory of operation. Files are numbered from 1 without holes. So each number up to the newest is
either a present file or a retired one: its live entries were copied, the copies were synced,
and only then was it removed. Any other number is a lost file. Each table records what is known
of the files, so that this outlives the files that said it first.

Rules: PROTOCOL J9.
"""

from collections.abc import Iterable, Iterator

import attrs

from regions.storage.protocol.intervals import IntervalSet


@attrs.frozen
class FileRow:
    """A promise about one journal file that is not written any more."""

    file_id: int
    length_bytes: int
    """Bytes certainly on disk: the whole file if it was sealed."""
    table_crc: int
    """Checksum of the table at its end; 0 if a crash ended the file, so that it has none."""


class KnownFiles:
    """The files before the open one.

    A file may be both present and retired: the process ended before it removed the file.
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
        """Note a file that is present and complete."""
        self._rows[row.file_id] = row

    def retire(self, file_id: int) -> None:
        """Note that nothing in the file is needed: it may go."""
        self._rows.pop(file_id, None)
        self.retired.add(file_id)

    def on_table(self, retired: Iterable[tuple[int, int]]) -> None:
        """Replay a table's list of retired files."""
        self.retired.update(retired)

    def lost(self, newest: int, *, table_newest: int) -> Iterator[tuple[int, int]]:
        """Ids up to `newest` of files that are neither present nor retired, as intervals.

        A file's retirement counts only if the file is older than an intact table: its promises,
        epochs and fences, must be recorded somewhere.
        """
        accounted = IntervalSet((file_id, file_id) for file_id in self._rows)
        for first, last in self.retired:
            if first < table_newest:
                accounted.add(first, min(last, table_newest - 1))
        return accounted.missing(1, newest)

    def rows(self) -> Iterator[FileRow]:
        """Rows for a table: the files before its own, ordered by id."""
        for file_id in sorted(self._rows):
            yield self._rows[file_id]


def merged_rows(rows: Iterable[FileRow]) -> dict[int, FileRow]:
    """Everything promised of each file, by any later file or table."""
    merged: dict[int, FileRow] = {}
    for row in rows:
        before = merged.setdefault(row.file_id, row)
        merged[row.file_id] = FileRow(
            row.file_id,
            max(before.length_bytes, row.length_bytes),
            row.table_crc or before.table_crc,
        )
    return merged
