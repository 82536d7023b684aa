"""Replay of a directory's journal files: their content, what is damaged, and what is lost.

Replay only reads. `restart` changes the disk afterwards, from the facts found here: the tail to
copy, the tables to write to table files, the retired files that are still there.

Rules: PROTOCOL J3 and J19.
"""

import logging
from collections.abc import Sequence

import attrs
from crc32c import crc32c

from regions.storage.disk import DiskFile
from regions.storage.entries import JournalFile
from regions.storage.found_files import FoundFile, FoundJournal, LoadedTable
from regions.storage.journal import JournalEnd, JournalIdentity
from regions.storage.journal_end import NO_END, OlderDiskError
from regions.storage.protocol.damage import (
    LOST,
    Damage,
    gaps_extent,
    shortened_extent,
    unproven_extent,
    unreadable_extent,
)
from regions.storage.protocol.known_files import FileRow, KnownFiles, merged_rows
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import (
    DATA_OFFSET,
    RECORD_HEADER_BYTES,
    JournalRecord,
    RecordCodec,
    RecordKind,
)
from regions.storage.protocol.scan import HeaderGap, JournalWalk
from regions.storage.protocol.tables import OpenTable, SealedTable
from regions.storage.readable import read_around, read_what_can_be

_log = logging.getLogger(__name__)

NO_SALT = bytes(8)
"""Used in the table file of a journal file whose header cannot be read."""


@attrs.frozen
class PendingTable:
    """A table to be written to a table file next to its journal file."""

    file_id: int
    salt: bytes
    proven_bytes: int
    entries: SealedTable
    is_needed: bool
    """Whether it holds promises found nowhere else on disk; otherwise it only saves a walk."""


class Replay:
    """Takes the files in order; afterwards `ledgers` and `files` hold the journal's content."""

    def __init__(
        self, found: FoundJournal, noted: JournalEnd, identity: JournalIdentity
    ) -> None:
        self._found = found.files
        self._identity = identity
        self._noted = noted
        self._end = _end_of(found.files)
        rows = [row for each in found.files for row in each.promised_rows()]
        if noted != NO_END:
            rows.append(FileRow(noted.file_id, noted.offset, 0))
        self._promised = merged_rows(rows)
        # A table file is made when the next journal file is there, never before.
        successors = [file_id + 1 for file_id in found.table_file_ids]
        present = [each.file_id for each in found.files]
        self.file_id_newest = max([*self._promised, *successors, *present], default=0)
        if found.is_last_empty:
            # The new file replaces it, so that starts that end early leave nothing behind.
            empty = found.files[-1]
            self._found = found.files[:-1]
            self._promised.pop(empty.file_id, None)
            self.file_id_newest = empty.file_id - 1
        self._tables: dict[int, SealedTable] = {}
        self._rows: dict[int, FileRow] = {}
        self._table_newest = 0
        self._damages: list[tuple[Damage, str]] = []
        self._unwritten_from: int | None = None
        self.ledgers = Ledgers(identity.instance)
        self.files = KnownFiles()
        self.tail: list[tuple[JournalRecord, bytes]] = []
        """Records of the last file above everything that is proven."""
        self.pending_tables: list[PendingTable] = []
        self.retired_there: list[FoundFile] = []

    @property
    def predecessor(self) -> tuple[int, int, int]:
        """The last file, as the next file's header must describe it."""
        if not self._found:
            return 0, 0, 0
        row = self._rows[self._found[-1].file_id]
        return row.file_id, row.length_bytes, row.table_crc

    async def on_files(self) -> None:
        """Replay all files. OlderDiskError if they end before what was noted."""
        self._check_end()
        accepted = {each.file_id: self._accepted_table(each) for each in self._found}
        covered = _covered(accepted)
        for each in self._found:
            promised = self._promised.get(each.file_id)
            if promised and each.file.size_bytes < promised.length_bytes:
                self._on_damage(
                    each,
                    shortened_extent(each.file.size_bytes),
                    f"it has {each.file.size_bytes} of {promised.length_bytes} synced bytes",
                )
            table = accepted[each.file_id]
            if table is not None:
                self._on_table(each, table, is_covered=each.file_id in covered)
                if table is each.table and not self._is_synced(each):
                    self._add_pending_table(each, table.proven_bytes, table.content.entries)
            elif each.codec is None:
                self._on_damage(
                    each, unreadable_extent(), "cannot read its header and its table"
                )
                self._keep(each, SealedTable(b""), 0)
            else:
                await self._on_records(each, each.codec)

    def on_tail(self, codec: RecordCodec) -> OpenTable:
        """Replay the tail at its offsets in the new file."""
        table = OpenTable()
        _, body_offsets, _ = codec.pack_all(DATA_OFFSET, self.tail)
        for (record, _), body_offset in zip(self.tail, body_offsets, strict=True):
            self._on_record(codec.file_id, table, record, body_offset)
        return table

    def on_end(self) -> None:
        """Conclude the replay: find which files are kept, lost or damaged."""
        for each in self._found:
            if each.file_id in self.files.retired and each.file_id < self._table_newest:
                self.retired_there.append(each)
            else:
                self.files.keep(self._rows[each.file_id])
        gone = {each.file_id for each in self.retired_there}
        for damage, what in self._damages:
            if damage.first not in gone:
                self._count_damage(damage, what)
        lost = self.files.lost(self.file_id_newest, table_newest=self._table_newest)
        for first, last in lost:
            what = f"journal files {first:016x} to {last:016x} are lost"
            self._count_damage(Damage(first, last, LOST), what)

    def _count_damage(self, damage: Damage, what: str) -> None:
        self.ledgers.on_damage(damage)
        _log.error("in %s: %s", self._identity.directory, what)

    async def cut_unwritten(self) -> None:
        """Free the space that the last process allocated ahead: a full disk may need it."""
        if self._unwritten_from is not None:
            await self._found[-1].file.truncate(self._unwritten_from)
            self._found[-1].file.rest()

    def kept_files(self) -> list[JournalFile]:
        """The files that remain readable."""
        return [
            JournalFile(each.file_id, each.file, self._tables[each.file_id])
            for each in self._found
            if self.files.find(each.file_id) is not None
        ]

    def _check_end(self) -> None:
        if self._end < self._noted:
            raise _older_disk(self._end, self._noted, self._identity)

    def _accepted_table(self, found: FoundFile) -> LoadedTable | None:
        """The file's table, if later files promise it; preferably one that is surely synced."""
        at_end, separate = found.table, found.separate_table
        promised = self._promised.get(found.file_id, FileRow(found.file_id, 0, 0))
        if at_end is not None and promised.table_crc not in (0, at_end.crc):
            at_end = None
        if separate is not None and separate.proven_bytes < promised.length_bytes:
            separate = None
        return at_end or separate if self._is_synced(found) else separate or at_end

    def _is_synced(self, found: FoundFile) -> bool:
        """Whether all of the file is surely on disk, including the table at its end."""
        promised = self._promised.get(found.file_id)
        return promised is not None and promised.length_bytes >= found.file.size_bytes

    def _on_table(self, found: FoundFile, table: LoadedTable, *, is_covered: bool) -> None:
        if not is_covered:
            self.ledgers.on_table(table.content)
        self.files.on_table(table.content.retired)
        self._table_newest = found.file_id
        self._keep(found, table.content.entries, table.proven_bytes, table.crc)

    async def _on_records(self, found: FoundFile, codec: RecordCodec) -> None:
        """Replay proven records, keep the tail of the last file, and record damage."""
        walk = JournalWalk(codec, DATA_OFFSET, found.file.size_bytes)
        holes: list[tuple[int, int]] = []
        while (window := walk.window()) is not None:
            readable = await read_around(found.file, *window)
            walk.take(window[0], readable.content)
            holes += readable.holes
        proven_end = self._proven_end(found, walk)
        self._on_gaps(found, [gap for gap in walk.gaps if gap.start < proven_end], proven_end)
        promised_end = proven_end
        in_tail = [hole for hole in holes if hole[1] > proven_end]
        if found is self._found[-1] and in_tail:
            self._on_holes_in_tail(found, in_tail)
            # Promised by the next file, the tail is examined again, with the same result, even
            # if the table file is lost that has this damage.
            promised_end = max(walk.content_end, proven_end)
        table = OpenTable()
        for offset, record in walk.records(end=proven_end):
            body_offset = offset + RECORD_HEADER_BYTES
            self._on_record(found.file_id, table, record, body_offset)
        if found is self._found[-1]:
            self.tail = await _read_tail(found.file, walk, proven_end)
            unwritten_from = max(walk.content_end, proven_end)
            if unwritten_from < found.file.size_bytes:
                self._unwritten_from = unwritten_from
        entries = table.sealed()
        self._keep(found, entries, promised_end)
        self._add_pending_table(found, promised_end, entries, is_needed=False)

    def _add_pending_table(
        self,
        found: FoundFile,
        proven_bytes: int,
        entries: SealedTable,
        *,
        is_needed: bool = True,
    ) -> None:
        salt = found.header.salt if found.header is not None else NO_SALT
        self.pending_tables.append(
            PendingTable(found.file_id, salt, proven_bytes, entries, is_needed)
        )

    def _proven_end(self, found: FoundFile, walk: JournalWalk) -> int:
        """The offset below which everything was synced."""
        promised = self._promised.get(found.file_id)
        # Only the table follows the last mark, and the table is rebuilt.
        if walk.is_sealed or (promised is None and found is self._found[-1]):
            return walk.mark_offset
        if promised is None:
            self._on_damage(
                found,
                unproven_extent(walk.mark_offset),
                "no later file says how much of it was synced",
            )
            return walk.mark_offset
        if found.file_id == self._noted.file_id and walk.content_end <= walk.records_end:
            end = JournalEnd(found.file_id, walk.records_end)
            if end < self._noted and found is self._found[-1]:
                raise _older_disk(end, self._noted, self._identity)
        return max(walk.mark_offset, promised.length_bytes)

    def _on_record(
        self, file_id: int, table: OpenTable, record: JournalRecord, body_offset: int
    ) -> None:
        self.ledgers.on_record(file_id, record)
        if record.kind is RecordKind.RETIRE:
            self.files.retire(record.file_id)
        elif record.kind is RecordKind.ENTRY:
            table.add(
                record.ledger, record.entry, body_offset, record.body_length, record.body_crc
            )

    def _keep(
        self, found: FoundFile, entries: SealedTable, proven_bytes: int, crc: int = 0
    ) -> None:
        promised = self._promised.get(found.file_id, FileRow(found.file_id, 0, 0))
        length_bytes = max(proven_bytes, promised.length_bytes)
        # Without a checksum, no later table can replace this file's own promises.
        crc = 0 if self._is_damaged(found) else crc or promised.table_crc
        self._tables[found.file_id] = entries
        self._rows[found.file_id] = FileRow(found.file_id, length_bytes, crc)

    def _is_damaged(self, found: FoundFile) -> bool:
        return any(damage.first == found.file_id for damage, _ in self._damages)

    def _on_gaps(self, found: FoundFile, gaps: Sequence[HeaderGap], proven_end: int) -> None:
        # Space after the proven bytes may be given back: it is not part of the extent.
        extent = gaps_extent((gap.start, min(gap.end, proven_end)) for gap in gaps)
        for gap in gaps:
            self._on_damage(found, extent, f"bytes {gap.start} to {gap.end} cannot be read")

    def _on_holes_in_tail(self, found: FoundFile, in_tail: Sequence[tuple[int, int]]) -> None:
        """Count unreadable bytes after the proven ones; other damage may be a torn write.

        They may hold acknowledged records, and the mark that would prove them.
        """
        for start, end in in_tail:
            self._on_damage(found, gaps_extent(in_tail), f"cannot read bytes {start} to {end}")

    def _on_damage(self, found: FoundFile, extent: int, what: str) -> None:
        damage = Damage.of_file(found.file_id, extent)
        self._damages.append((damage, f"{found.file.name} is damaged: {what}"))


def _covered(tables: dict[int, LoadedTable | None]) -> set[int]:
    """Files whose promises the newest table repeats: they need no replay."""
    intact = {file_id: table for file_id, table in tables.items() if table is not None}
    if not intact:
        return set()
    newest = intact[max(intact)]
    return {
        row.file_id
        for row in newest.content.files
        if row.table_crc and row.file_id in intact and intact[row.file_id].crc == row.table_crc
    }


async def _read_tail(
    file: DiskFile, walk: JournalWalk, start: int
) -> list[tuple[JournalRecord, bytes]]:
    """The records from `start` up to the first that is not whole."""
    tail: list[tuple[JournalRecord, bytes]] = []
    at = start
    for offset, record in walk.records(start):
        body = await read_what_can_be(file, offset + RECORD_HEADER_BYTES, record.body_length)
        is_whole = len(body) == record.body_length and crc32c(body) == record.body_crc
        if offset > at or not is_whole or record.kind is RecordKind.TABLE:
            break
        at = offset + RECORD_HEADER_BYTES + record.body_length
        if record.kind is not RecordKind.MARK:
            tail.append((record, body))
    return tail


def _end_of(files: list[FoundFile]) -> JournalEnd:
    return JournalEnd(files[-1].file_id, files[-1].file.size_bytes) if files else NO_END


def _older_disk(
    end: JournalEnd, noted: JournalEnd, identity: JournalIdentity
) -> OlderDiskError:
    return OlderDiskError(
        f"the journal of node {identity.node_id} in {identity.directory} ends at byte"
        f" {end.offset} of file {end.file_id:016x}, but metadata records its end at byte"
        f" {noted.offset} of file {noted.file_id:016x}: files were lost or cut, or this is"
        " an old copy. Restore the node's own disk, or replace the node:"
        f" `geolog node replace {identity.node_id}`"
    )
