"""From the files of a data directory to a journal: what is true, what is torn, what is rot.

Theory of operation. Files are replayed in order. A sealed file gives its table if that is
intact, else it is walked from record to record, up to where its successor says that it was
synced. In the last file all below its highest mark was synced: what cannot be read there is
rot. From the mark on nothing was certainly acknowledged, and nothing is known to be on disk:
the valid records up to the first bad one are copied to a new file, and only when that is
synced does the node answer anything (planted bug 34). The old file is never written again: if
its last process was told by the disk of a failure, that file's unsynced pages may look written
and be gone (planted bug 14).

Rot and a missing or shortened file put every ledger in doubt that may have had a record there
(`Ledgers.on_damage`); an entry that a readable header or the table names is CORRUPT at worst.
"""

import logging
from collections.abc import Callable

import attrs
from crc32c import crc32c

from regions.protocol.known_files import FileRow, KnownFiles
from regions.protocol.ledgers import Ledgers
from regions.protocol.records import (
    DATA_OFFSET,
    RECORD_HEADER_BYTES,
    FileHeader,
    Kind,
    Record,
    RecordCodec,
    file_id_of,
    is_unfinished,
)
from regions.protocol.scan import JournalWalk
from regions.protocol.tables import (
    FOOTER_BYTES,
    Footer,
    FoundTable,
    OpenTable,
    SealedTable,
)
from regions.storage.disk import Disk, DiskFile
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.identity import WrongDataDirectoryError
from regions.storage.journal import JournalEnd, JournalIdentity, OpenFile, create_file
from regions.storage.journal_end import NO_END, OlderDiskError
from topology.errors import DamagedBytesError

_log = logging.getLogger(__name__)


@attrs.frozen
class Restarted:
    """What a node knows when it begins to answer."""

    ledgers: Ledgers
    entries: EntryStore
    files: KnownFiles
    opened: OpenFile


@attrs.frozen
class _Found:
    """A journal file as found; `header` is None if it cannot be read."""

    file_id: int
    file: DiskFile
    header: FileHeader | None

    @property
    def codec(self) -> RecordCodec | None:
        """Reads its records, if the header could be read."""
        return RecordCodec(self.file_id, self.header.salt) if self.header else None


@attrs.frozen
class _Tail:
    """What the last file has from its highest mark on."""

    mark_offset: int
    records: list[tuple[Record, bytes]]


async def restart_journal(
    disk: Disk,
    identity: JournalIdentity,
    *,
    noted: JournalEnd = NO_END,
    cached_bytes_max: int,
    salt_source: Callable[[int], bytes],
) -> Restarted:
    """Replay all files, then begin a new one. Nothing may be answered before this returns.

    OlderDiskError if the journal ends before what is `noted` of it.
    """
    ledgers = Ledgers(identity.instance)
    entries = EntryStore(ledgers, cached_bytes_max=cached_bytes_max)
    files = KnownFiles()
    replay = _Replay(ledgers, entries, files)
    found = await _find_files(disk, identity)
    _check_end(found, noted, identity)
    successors: list[_Found | None] = [*found[1:], None]
    for each, successor in zip(found, successors, strict=False):
        await replay.on_file(each, successor)
    header = FileHeader(
        found[-1].file_id + 1 if found else 1,
        identity.instance,
        identity.cluster_id,
        salt_source(8),
        found[-1].file_id if found else 0,
        replay.tail.mark_offset,
    )
    opened = await create_file(disk, header, replay.tail.records)
    table = OpenTable()
    _, body_offsets, _ = opened.codec.pack_all(DATA_OFFSET, replay.tail.records)
    for (record, _), body_offset in zip(replay.tail.records, body_offsets, strict=True):
        replay.on_record(header.file_id, table, record, body_offset)
    entries.add_file(JournalFile(header.file_id, opened.file, table))
    return Restarted(ledgers, entries, files, opened)


async def _find_files(disk: Disk, identity: JournalIdentity) -> list[_Found]:
    found: list[_Found] = []
    for name in await disk.list():
        if is_unfinished(name):
            await disk.remove(name)
        file_id = file_id_of(name)
        if file_id is None:
            continue
        file = await disk.open(name)
        found.append(_Found(file_id, file, await _read_header(file, file_id, identity)))
    return found


def _check_end(found: list[_Found], noted: JournalEnd, identity: JournalIdentity) -> None:
    file = found[-1].file if found else None
    end = JournalEnd(found[-1].file_id, file.size_bytes) if file else NO_END
    if end < noted:
        raise OlderDiskError(
            f"the journal of node {identity.node_id} ends with {end.offset} bytes of file"
            f" {end.file_id:016x}, but once it reached byte {noted.offset} of file"
            f" {noted.file_id:016x}: files were lost or cut, or this is an old copy. Give the"
            f" node its disk back, or replace it by `geolog node replace {identity.node_id}`"
        )


async def _read_header(
    file: DiskFile, file_id: int, identity: JournalIdentity
) -> FileHeader | None:
    try:
        header = FileHeader.decode(await file.read(0, DATA_OFFSET))
    except DamagedBytesError as error:
        _log.error("%s: %s", file.name, error)
        return None
    if (header.instance, header.cluster_id) != (identity.instance, identity.cluster_id):
        raise WrongDataDirectoryError(
            f"{file.name} was written by node {header.instance} of cluster "
            f"{header.cluster_id}; this is node {identity.instance} of cluster "
            f"{identity.cluster_id}"
        )
    if header.file_id != file_id:
        raise WrongDataDirectoryError(
            f"{file.name} is journal file {header.file_id:016x} under another name"
        )
    return header


class _Replay:
    """Takes the files in order."""

    def __init__(self, ledgers: Ledgers, entries: EntryStore, files: KnownFiles) -> None:
        self._ledgers = ledgers
        self._entries = entries
        self._files = files
        self._file_id_before = 0
        self.tail = _Tail(0, [])

    async def on_file(self, found: _Found, successor: _Found | None) -> None:
        """Replay one file; the last has no successor."""
        self._check_predecessor(found)
        sealed = await _read_table(found, _promise(found, successor))
        if sealed is not None:
            footer, found_table = sealed
            table = found_table.entries
            self._ledgers.on_table(found_table)
            self._files.on_table(found_table.retired)
            self._files.keep(FileRow(found.file_id, found.file.size_bytes, footer.table_crc))
            # The table stands behind its record's header and the mark before that.
            self.tail = _Tail(footer.table_offset - 2 * RECORD_HEADER_BYTES, [])
        elif found.codec is None:
            self._on_damage(found, "its header and its table cannot be read")
            table = SealedTable(b"")
            self.tail = _Tail(0, [])
        else:
            table = await self._on_records(found, found.codec, successor)
        self._entries.add_file(JournalFile(found.file_id, found.file, table))

    def on_record(
        self, file_id: int, table: OpenTable, record: Record, body_offset: int
    ) -> None:
        """Replay one record."""
        self._ledgers.on_record(file_id, record)
        if record.kind is Kind.RETIRE:
            self._files.retire(record.file_id)
        if record.kind is Kind.ENTRY:
            table.add(
                record.ledger, record.entry, body_offset, record.body_length, record.body_crc
            )

    def _check_predecessor(self, found: _Found) -> None:
        expected = found.header.predecessor_id if found.header else self._file_id_before
        if expected != self._file_id_before:
            _log.error("journal file %016x, before %s, is missing", expected, found.file.name)
            self._ledgers.on_damage(max(expected, self._file_id_before))
        self._file_id_before = found.file_id

    async def _on_records(
        self, found: _Found, codec: RecordCodec, successor: _Found | None
    ) -> SealedTable:
        """Replay what is proven, keep the tail of the last file, and say what is damaged."""
        walk = JournalWalk(codec, DATA_OFFSET, found.file.size_bytes)
        while (window := walk.window()) is not None:
            walk.take(window[0], await found.file.read(*window))
        proven_end = walk.mark_offset
        if successor is not None:
            proven_end = self._proven_end(found, _promise(found, successor), walk)
        for gap in walk.gaps:
            if gap.start < proven_end:
                self._on_damage(found, f"bytes {gap.start} to {gap.end} cannot be read")
        table = OpenTable()
        for offset, record in walk.records():
            if offset < proven_end:
                body_offset = offset + RECORD_HEADER_BYTES
                self.on_record(found.file_id, table, record, body_offset)
        self._files.keep(FileRow(found.file_id, proven_end, 0))
        if successor is None:
            self.tail = _Tail(proven_end, await _read_tail(found.file, walk))
        return table.sealed()

    def _proven_end(self, found: _Found, promise: FileHeader | None, walk: JournalWalk) -> int:
        if promise is None:
            self._on_damage(found, "the next file does not say how much of it was synced")
            return walk.mark_offset
        if found.file.size_bytes < promise.predecessor_bytes:
            self._on_damage(
                found,
                f"it has {found.file.size_bytes} of {promise.predecessor_bytes} synced bytes",
            )
        # Behind the last mark of all stands nothing but the table, and that is made anew.
        return walk.mark_offset if walk.is_sealed else promise.predecessor_bytes

    def _on_damage(self, found: _Found, what: str) -> None:
        _log.error("%s is damaged: %s", found.file.name, what)
        self._ledgers.on_damage(found.file_id)


def _promise(found: _Found, successor: _Found | None) -> FileHeader | None:
    """The next file's header, if it can be read and truly is of the next: it knows this one."""
    if successor is None or successor.header is None:
        return None
    header = successor.header
    return header if header.predecessor_id == found.file_id else None


async def _read_table(
    found: _Found, promise: FileHeader | None
) -> tuple[Footer, FoundTable] | None:
    """The table at the end of the file, if it is there, intact, and the one expected."""
    file = found.file
    end = file.size_bytes
    last_bytes = await file.read(max(0, end - FOOTER_BYTES), FOOTER_BYTES)
    footer = Footer.decode(last_bytes, found.file_id)
    if footer is None or footer.table_offset + footer.table_length + FOOTER_BYTES != end:
        return None
    if promise and promise.predecessor_table_crc not in (0, footer.table_crc):
        return None
    body = await file.read(footer.table_offset, footer.table_length)
    if len(body) != footer.table_length or crc32c(body) != footer.table_crc:
        return None
    return footer, FoundTable(body)


async def _read_tail(file: DiskFile, walk: JournalWalk) -> list[tuple[Record, bytes]]:
    """The records from the highest mark on, up to the first that is not whole."""
    tail: list[tuple[Record, bytes]] = []
    at = walk.mark_offset
    for offset, record in walk.records():
        if offset < at:
            continue
        body = await file.read(offset + RECORD_HEADER_BYTES, record.body_length)
        is_whole = len(body) == record.body_length and crc32c(body) == record.body_crc
        if offset > at or not is_whole or record.kind is Kind.TABLE:
            break
        at = offset + RECORD_HEADER_BYTES + record.body_length
        if record.kind is not Kind.MARK:
            tail.append((record, body))
    return tail
