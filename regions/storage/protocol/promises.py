"""What a node has promised, put together for a table; at once, or step by step.

Rules: PROTOCOL J21.
"""

from collections.abc import Iterator
from itertools import islice

from crc32c import crc32c

from regions.storage.protocol.known_files import KnownFiles
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.tables import (
    LedgerRow,
    OpenTable,
    Promises,
    SealedTable,
    TableSealing,
    encode_promises,
)


def promises_of(ledgers: Ledgers, files: KnownFiles) -> Promises:
    """All that is known of the whole node now, also by records that are in flight."""
    return _with_rows(list(ledgers.rows()), ledgers, files)


class TableBuild:
    """The table that ends a file, built while the node goes on.

    Theory of operation. The rows of ledgers come first, then all else that is promised, at
    once, then the rows of entries. What is promised meanwhile goes to the next file, so a row
    may be ahead of the records and is never behind. The order keeps the sections true to each
    other: a ledger that is deleted before its row is written stands in the section of deleted
    ones, and a file that is retired is in one of its two sections.
    """

    def __init__(self, ledgers: Ledgers, files: KnownFiles, opened: OpenTable) -> None:
        self._ledgers = ledgers
        self._files = files
        self._sealing = TableSealing(opened)
        self._entries_count = len(opened)
        self._head: list[bytes] = []
        self.crc = 0
        """Checksum of the body, after the last step."""

    @property
    def table(self) -> SealedTable:
        """The places of the entries, after the last step."""
        return self._sealing.table

    @property
    def pieces(self) -> list[bytes | bytearray]:
        """The body of the TABLE record, after the last step."""
        return [*self._head, self.table.rows]

    def steps(self, *, rows_max: int) -> Iterator[None]:
        """Do it, in steps of so many rows."""
        ledger_rows: list[bytes] = []
        rows, ledgers_count = self._ledgers.rows(), 0
        while found := [row.encode() for row in islice(rows, rows_max)]:
            ledger_rows.append(b"".join(found))
            ledgers_count += len(found)
            yield
        self._head = encode_promises(
            _with_rows([], self._ledgers, self._files),
            ledger_rows,
            ledgers_count=ledgers_count,
            entries_count=self._entries_count,
        )
        for piece in self._head:
            self.crc = crc32c(piece, self.crc)
        for done in self._sealing.steps(rows_max=rows_max):
            self.crc = crc32c(done, self.crc)
            yield


def _with_rows(rows: list[LedgerRow], ledgers: Ledgers, files: KnownFiles) -> Promises:
    return Promises(
        rows,
        ledgers.deleted,
        list(files.rows()),
        files.retired,
        ledgers.damaged,
        ledgers.settled,
    )
