"""Where each entry is: the open file's growing table, and the sorted table of a sealed file.

A sealed file ends with its table, written once. Its first sections are promises of the whole
node, which must outlive the files that first held them: all ledgers, deleted ledgers, files and
retired files. The last section is the sorted list of where each entry of this file is. A footer
of fixed size, at the very end, says where the table is.

Rows stay bytes in memory, because an object for each entry would cost ten times as much.

Rules: PROTOCOL J10 and J21.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import attrs
from crc32c import crc32c

from geolog.protocol.ids import EntryId, Epoch, LedgerId
from regions.storage.protocol.damage import Damage, DamageSet
from regions.storage.protocol.intervals import IntervalSet
from regions.storage.protocol.known_files import FileRow
from regions.storage.protocol.ledger_rows import ENTRY_ROW, LedgerRows
from topology.errors import DamagedBytesError

_COUNTS = struct.Struct("<QQQQQQQ")
_LEDGER_ROW = struct.Struct("<qqqqQBB6x")
_INTERVAL_ROW = struct.Struct("<QQ")
_FILE_ROW = struct.Struct("<QQI4x")
_DAMAGE_ROW = struct.Struct("<QQI4x")
_ENTRY_ROW = ENTRY_ROW
TABLE_ROW_BYTES_MAX = _LEDGER_ROW.size
"""Longest row of a table."""
_PIECE_COSTS_ROWS = 32
_ENTRY_KEY = struct.Struct("<QQ")
_ENTRY_PLACE = struct.Struct("<QII")
_OFFSET = struct.Struct("<Q")

_FOOTER_MAGIC = b"geologJT"
_FOOTER = struct.Struct("<8sQQQI")
_CHECKSUM = struct.Struct("<I")
FOOTER_BYTES = _FOOTER.size + _CHECKSUM.size


@attrs.frozen
class EntryPlace:
    """Where an entry's body is in its file, and its expected checksum."""

    offset: int
    length: int
    crc: int


@attrs.frozen
class EntryRow:
    """One entry of a file."""

    ledger: LedgerId
    entry: EntryId
    place: EntryPlace


@attrs.frozen
class LedgerRow:
    """The node's promises about a ledger, including those of records in flight at the time.

    So after a crash the row may be ahead of the records on disk, never behind: a fence or an
    epoch that nobody was told of yet, or an `entry_highest` that was never stored.
    """

    ledger: LedgerId
    epoch_highest: Epoch
    lac: EntryId
    entry_highest: EntryId
    first_file_id: int
    """File of its first record; 0 when that is not certain."""
    is_fenced: bool
    is_let_go: bool = False

    def encode(self) -> bytes:
        """The row's bytes."""
        return _LEDGER_ROW.pack(
            self.ledger,
            self.epoch_highest,
            self.lac,
            self.entry_highest,
            self.first_file_id,
            self.is_fenced,
            self.is_let_go,
        )


@attrs.frozen
class Footer:
    """The last bytes of a sealed file: where its table's body is, and its checksum."""

    file_id: int
    table_offset: int
    table_length: int
    table_crc: int

    def encode(self) -> bytes:
        """`FOOTER_BYTES` bytes."""
        packed = _FOOTER.pack(_FOOTER_MAGIC, *attrs.astuple(self))
        return packed + _CHECKSUM.pack(crc32c(packed))

    @classmethod
    def decode(cls, found: bytes, file_id: int) -> "Footer | None":
        """The footer of that file; None if these bytes are damaged or something else."""
        if len(found) != FOOTER_BYTES:
            return None
        packed = found[: _FOOTER.size]
        if crc32c(packed) != _CHECKSUM.unpack_from(found, _FOOTER.size)[0]:
            return None
        magic, *fields = _FOOTER.unpack(packed)
        footer = cls(*fields)
        return footer if magic == _FOOTER_MAGIC and footer.file_id == file_id else None


class OpenTable:
    """The entries of a growing file; a later row of an entry replaces an earlier one."""

    def __init__(self) -> None:
        self._rows_of: dict[int, LedgerRows] = {}
        self._count = 0
        self.end = 0
        """Where the body of the last entry ends; the next ones come after it."""

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the table."""
        return sum(rows.size_bytes for rows in self._rows_of.values())

    def add(self, ledger: int, entry: int, offset: int, length: int, crc: int) -> None:
        """Note where an entry's body is."""
        rows = self._rows_of.get(ledger)
        if rows is None:
            rows = self._rows_of[ledger] = LedgerRows()
        self._count += rows.put(entry, _ENTRY_ROW.pack(ledger, entry, offset, length, crc))
        self.end = offset + length

    def find(self, ledger: int, entry: int) -> EntryPlace | None:
        """Where the entry is; None if it is not in this file."""
        rows = self._rows_of.get(ledger)
        row = None if rows is None else rows.find(entry)
        return (
            None if row is None else EntryPlace(*_ENTRY_PLACE.unpack_from(row, _ENTRY_KEY.size))
        )

    def sealed(self) -> "SealedTable":
        """The same entries, sorted; final."""
        sealing = TableSealing(self)
        for _ in sealing.steps(rows_max=len(self) + 1):
            pass
        return sealing.table

    def ledger_rows(self) -> Iterator[tuple[int, LedgerRows]]:
        """The rows of each ledger, ordered by ledger id."""
        for ledger in sorted(self._rows_of):
            yield ledger, self._rows_of[ledger]


class TableSealing:
    """Puts the rows of an open table in their final order, step by step.

    No entry may be added meanwhile; existing ones can be found.
    """

    def __init__(self, opened: OpenTable) -> None:
        self._opened = opened
        self._rows = bytearray(len(opened) * _ENTRY_ROW.size)
        self._ledgers, self._starts = array("q"), array("Q")

    @property
    def table(self) -> "SealedTable":
        """The sealed table, after the last step."""
        return SealedTable(self._rows, (self._ledgers, self._starts))

    def steps(self, *, rows_max: int) -> Iterator[memoryview]:
        """Yield the rows that each step has put in order: about `rows_max`, or fewer."""
        at = begun = work = 0
        with memoryview(self._rows) as rows:
            for ledger, of_ledger in self._opened.ledger_rows():
                self._ledgers.append(ledger)
                self._starts.append(at // _ENTRY_ROW.size)
                for piece in of_ledger.pieces(rows_max):
                    rows[at : at + len(piece)] = piece
                    at += len(piece)
                    # Many short pieces take as long as few long ones.
                    work += _PIECE_COSTS_ROWS + len(piece) // _ENTRY_ROW.size
                    if work >= rows_max:
                        yield rows[begun:at]
                        begun, work = at, 0
            self._starts.append(at // _ENTRY_ROW.size)
            assert at == len(rows), f"{at} bytes of rows, {len(rows)} were counted"
            if begun < at:
                yield rows[begun:at]


class SealedTable:
    """The entries of a sealed file, sorted by ledger and entry."""

    def __init__(
        self, rows: bytes | bytearray, index: "tuple[array[int], array[int]] | None" = None
    ) -> None:
        """`index` has the ledgers and the first row of each, if known."""
        self._rows = rows
        self._ledgers = array("q")
        self._starts = array("Q")  # First row of each ledger, then the count of all rows.
        if index is not None:
            self._ledgers, self._starts = index
        else:
            self._find_ledgers()

    def __len__(self) -> int:
        return len(self._rows) // _ENTRY_ROW.size

    @property
    def rows(self) -> bytes | bytearray:
        """The table's entry section."""
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the table."""
        return len(self._rows) + 16 * len(self._ledgers)

    def find(self, ledger: int, entry: int) -> EntryPlace | None:
        """Where the entry is; None if it is not in this file."""
        at = bisect_left(self._ledgers, ledger)
        if at == len(self._ledgers) or self._ledgers[at] != ledger:
            return None
        low, high = self._starts[at], self._starts[at + 1]
        # If no entry is missing before it, this is its row; else it is in an earlier one.
        row = low + entry - self._key(low)[1]
        if row < low:
            return None
        if row >= high or self._key(row)[1] != entry:
            row = self._first_from(entry, low, min(row, high))
            if row == high or self._key(row)[1] != entry:
                return None
        return EntryPlace(
            *_ENTRY_PLACE.unpack_from(self._rows, row * _ENTRY_ROW.size + _ENTRY_KEY.size)
        )

    @property
    def ledgers(self) -> Sequence[int]:
        """The ledgers that have entries here, sorted."""
        return self._ledgers

    def sizes(self, at: int, *, step: int, each_bytes: int) -> Iterator[tuple[int, int]]:
        """For the ledger with this index: bytes of its entries, and where its last body begins.

        Yields for `step` entries at a time; `each_bytes` are added for each entry.
        """
        size = _ENTRY_ROW.size
        for row in range(self._starts[at], self._starts[at + 1], step):
            end = min(row + step, self._starts[at + 1])
            rows = memoryview(self._rows)[row * size : end * size]
            places = [
                (length, offset) for *_, offset, length, _ in _ENTRY_ROW.iter_unpack(rows)
            ]
            size_bytes = sum(length for length, _ in places) + (end - row) * each_bytes
            yield size_bytes, max(offset for _, offset in places)

    def row(self, at: int) -> EntryRow:
        """One row, by its number."""
        ledger, entry, *place = _ENTRY_ROW.unpack_from(self._rows, at * _ENTRY_ROW.size)
        return EntryRow(LedgerId(ledger), EntryId(entry), EntryPlace(*place))

    def offset(self, at: int) -> int:
        """Offset of the body of a row's entry."""
        offset: int = _OFFSET.unpack_from(self._rows, at * _ENTRY_ROW.size + _ENTRY_KEY.size)[0]
        return offset

    def _key(self, row: int) -> tuple[int, int]:
        ledger, entry = _ENTRY_KEY.unpack_from(self._rows, row * _ENTRY_ROW.size)
        return ledger, entry

    def _first_from(self, entry: int, low: int, high: int) -> int:
        """First row of these, all of one ledger, whose entry is not lower; `high` if none."""
        while low < high:
            middle = (low + high) // 2
            if self._key(middle)[1] < entry:
                low = middle + 1
            else:
                high = middle
        return low

    def _find_ledgers(self) -> None:
        row, count = 0, len(self)
        while row < count:
            ledger = self._key(row)[0]
            self._ledgers.append(ledger)
            self._starts.append(row)
            row = self._end_of(ledger, row)
        self._starts.append(count)

    def _end_of(self, ledger: int, row: int) -> int:
        """First row at or after `row` of another ledger; by doubling, then halving."""
        step, count = 1, len(self)
        while row + step < count and self._key(row + step)[0] == ledger:
            step *= 2
        low, high = row + step // 2, min(row + step, count)
        while low < high:
            middle = (low + high) // 2
            if self._key(middle)[0] == ledger:
                low = middle + 1
            else:
                high = middle
        return low


@attrs.frozen
class Promises:
    """A table's statements about the whole node, as of when the table was written."""

    ledgers: Sequence[LedgerRow] = ()
    """All known ledgers that are not deleted, sorted."""
    deleted: IntervalSet = attrs.field(factory=IntervalSet)
    """Ids of deleted ledgers."""
    files: Sequence[FileRow] = ()
    """The journal files before this one, sorted."""
    retired: IntervalSet = attrs.field(factory=IntervalSet)
    """Ids of journal files that were removed on purpose."""
    damaged: DamageSet = attrs.field(factory=DamageSet)
    """Damage to journal files; this table may lack what it took."""
    settled: DamageSet = attrs.field(factory=DamageSet)
    """Damage to journal files that was made good."""


class FoundTable:
    """A table's body as read back; ledger rows, which may be many, are unpacked on demand."""

    def __init__(self, body: bytes) -> None:
        """DamagedBytesError if its length does not match its counts."""
        if len(body) < _COUNTS.size:
            raise DamagedBytesError(f"a table must be longer than {len(body)} bytes")
        counts = _COUNTS.unpack_from(body)
        sections = _sections(body, counts)
        if sections is None:
            raise DamagedBytesError(
                f"table length {len(body)} does not match sections of {counts} rows"
            )
        self._ledgers, deleted, files, retired, damaged, settled, entries = sections
        self.deleted = IntervalSet(_INTERVAL_ROW.iter_unpack(deleted))
        self.files = [FileRow(*fields) for fields in _FILE_ROW.iter_unpack(files)]
        self.retired = IntervalSet(_INTERVAL_ROW.iter_unpack(retired))
        self.damaged = _damages_of(damaged)
        self.settled = _damages_of(settled)
        self.entries = SealedTable(entries)

    def ledgers(self) -> Iterator[LedgerRow]:
        """Its row of each ledger."""
        for *numbers, fenced, let_go in _LEDGER_ROW.iter_unpack(self._ledgers):
            flags = bool(fenced), bool(let_go)
            yield LedgerRow(*numbers, *flags)  # type: ignore[call-arg]  # Five numbers.


def encode_promises(
    promises: Promises, ledger_rows: Sequence[bytes], *, ledgers_count: int, entries_count: int
) -> list[bytes]:
    """The body of a TABLE record up to the rows of entries.

    The rows of ledgers come as bytes, in pieces of any size, and not from `promises`.
    """
    counts = _COUNTS.pack(
        ledgers_count,
        promises.deleted.intervals_count,
        len(promises.files),
        promises.retired.intervals_count,
        len(promises.damaged),
        len(promises.settled),
        entries_count,
    )
    return [
        counts,
        *ledger_rows,
        *(_INTERVAL_ROW.pack(*interval) for interval in promises.deleted),
        *(_FILE_ROW.pack(*attrs.astuple(row)) for row in promises.files),
        *(_INTERVAL_ROW.pack(*interval) for interval in promises.retired),
        *(_DAMAGE_ROW.pack(*attrs.astuple(damage)) for damage in promises.damaged),
        *(_DAMAGE_ROW.pack(*attrs.astuple(damage)) for damage in promises.settled),
    ]


def encode_table(promises: Promises, table: SealedTable) -> bytes:
    """The body of a TABLE record."""
    head = encode_promises(
        promises,
        [row.encode() for row in promises.ledgers],
        ledgers_count=len(promises.ledgers),
        entries_count=len(table),
    )
    return b"".join([*head, table.rows])


_SECTION_ROWS = (
    _LEDGER_ROW,
    _INTERVAL_ROW,
    _FILE_ROW,
    _INTERVAL_ROW,
    _DAMAGE_ROW,
    _DAMAGE_ROW,
    _ENTRY_ROW,
)


def _damages_of(rows: bytes) -> DamageSet:
    return DamageSet(Damage(*fields) for fields in _DAMAGE_ROW.iter_unpack(rows))


def _sections(body: bytes, counts: Sequence[int]) -> list[bytes] | None:
    """The bytes of each section; None if they do not fill the body."""
    ends = list(
        accumulate(
            (count * row.size for count, row in zip(counts, _SECTION_ROWS, strict=True)),
            initial=_COUNTS.size,
        )
    )
    if ends[-1] != len(body):
        return None
    return [body[start:end] for start, end in pairwise(ends)]
