"""The node's promises, assembled for a table, at once or step by step.

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
    """The whole node's promises now, including those of records in flight."""
    return _with_rows(list(ledgers.rows()), ledgers, files)


class TableBuild:
    """The table that ends a file, built while the node goes on.

    Theory of operation. The rows of ledgers come first; then all other promises, at once; then
    the rows of entries. Promises made meanwhile go to the next file, so a row may be ahead of
    the records and is never behind. The order keeps the sections consistent: a ledger deleted
    before its row is written is in the section of deleted ones, and a retired file is in one of
    its two sections.
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
        """Where the entries are, after the last step."""
        return self._sealing.table

    @property
    def pieces(self) -> list[bytes | bytearray]:
        """The body of the TABLE record, after the last step."""
        return [*self._head, self.table.rows]

    def steps(self, *, rows_max: int) -> Iterator[None]:
        """Build it, in steps of `rows_max` rows."""
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
