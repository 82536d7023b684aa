"""The contents of a data directory at a start: journal files, their headers and tables.

Looking changes nothing: a refused start leaves the directory as it was.

Rules: PROTOCOL J16.
"""

import logging

import attrs
from crc32c import crc32c

from regions.storage.cookies import WrongDataDirectoryError
from regions.storage.disk import Disk, DiskFile
from regions.storage.journal import JournalIdentity
from regions.storage.protocol.known_files import FileRow
from regions.storage.protocol.records import (
    DATA_OFFSET,
    RECORD_HEADER_BYTES,
    FileHeader,
    RecordCodec,
    file_id_of,
    is_unfinished,
)
from regions.storage.protocol.table_files import TableFile, is_table_file, table_file_name
from regions.storage.protocol.tables import FOOTER_BYTES, Footer, FoundTable
from regions.storage.readable import read_what_can_be
from topology.errors import DamagedBytesError

_log = logging.getLogger(__name__)

_LAST_BYTES = 64 << 10
"""Bytes to read from the end of each file at once: enough for small tables."""


@attrs.frozen
class LoadedTable:
    """An intact table of a journal file."""

    content: FoundTable
    proven_bytes: int
    """The table covers all records that begin before this offset."""
    crc: int
    """Checksum of the table at the file's end; 0 if the table is in a table file."""


@attrs.frozen
class FoundFile:
    """A journal file as found; unreadable parts are None."""

    file_id: int
    file: DiskFile
    header: FileHeader | None
    table: LoadedTable | None
    """The table at the end of the file."""
    separate_table: LoadedTable | None
    """The table in a separate table file."""

    @property
    def codec(self) -> RecordCodec | None:
        """Decoder of its records, if the header is readable."""
        return RecordCodec(self.file_id, self.header.salt) if self.header else None

    def promised_rows(self) -> list[FileRow]:
        """Promises of this file about files before it."""
        table = self.table or self.separate_table
        rows = list(table.content.files) if table else []
        header = self.header
        if header is not None and header.predecessor_id:
            rows.append(
                FileRow(
                    header.predecessor_id,
                    header.predecessor_bytes,
                    header.predecessor_table_crc,
                )
            )
        return rows


@attrs.frozen
class FoundJournal:
    """All journal files of a data directory, and the files that belong to them."""

    files: list[FoundFile]
    """Ordered by id."""
    leftovers: list[str]
    """Names of files that were never finished, or whose journal file is missing."""
    table_file_ids: list[int]
    """Journal files that have a table file, intact or not: each had a successor."""

    @property
    def is_last_empty(self) -> bool:
        """Whether the newest file holds only a header: it was begun, never written."""
        last = self.files[-1] if self.files else None
        return (
            last is not None
            and last.header is not None
            and last.file.size_bytes == DATA_OFFSET
            and last.file_id not in self.table_file_ids
        )


_GIVE_BACK = "restore the directory's own files, or replace the node: `geolog node replace`"


async def find_files(disk: Disk, identity: JournalIdentity) -> FoundJournal:
    """Inspect all files. WrongDataDirectoryError if another node wrote one of them."""
    names = dict.fromkeys(await disk.list())
    ids = {name: file_id for name in names if (file_id := file_id_of(name)) is not None}
    tables = {table_file_name(file_id): file_id for file_id in ids.values()}
    files = []
    for name, file_id in sorted(ids.items(), key=lambda item: item[1]):
        file = await disk.open(name)
        header = await _read_header(disk, file, file_id, identity)
        table = await read_table(file, file_id)
        separate = None
        if table_file_name(file_id) in names:
            separate = await read_table_file(disk, file_id, identity, header)
        file.rest()
        files.append(FoundFile(file_id, file, header, table, separate))
    return FoundJournal(
        files,
        [name for name in names if is_unfinished(name) or _is_orphan(name, tables)],
        [tables[name] for name in names if name in tables],
    )


def _is_orphan(name: str, tables: dict[str, int]) -> bool:
    return is_table_file(name) and name not in tables


async def _read_header(
    disk: Disk, file: DiskFile, file_id: int, identity: JournalIdentity
) -> FileHeader | None:
    try:
        header = FileHeader.decode(await read_what_can_be(file, 0, DATA_OFFSET))
    except DamagedBytesError as error:
        _log.error("%s: %s", file.name, error)
        return None
    if (header.instance, header.cluster_id) != (identity.instance, identity.cluster_id):
        raise WrongDataDirectoryError(
            f"{file.name} in {disk} was written by instance {header.instance} of cluster"
            f" {header.cluster_id}, but the directory belongs to instance {identity.instance}"
            f" of cluster {identity.cluster_id}: {_GIVE_BACK}"
        )
    if header.file_id != file_id:
        raise WrongDataDirectoryError(
            f"{file.name} in {disk} is journal file {header.file_id:016x}, renamed:"
            f" {_GIVE_BACK}"
        )
    return header


async def read_table(file: DiskFile, file_id: int) -> LoadedTable | None:
    """The table at the end of the file, if present and intact."""
    last_offset = max(0, file.size_bytes - _LAST_BYTES)
    last = await read_what_can_be(file, last_offset, _LAST_BYTES)
    footer = Footer.decode(last[-FOOTER_BYTES:], file_id)
    if footer is None:
        return None
    offset, length = footer.table_offset, footer.table_length
    if offset < DATA_OFFSET or offset + length + FOOTER_BYTES != file.size_bytes:
        return None
    if offset >= last_offset:
        body = last[offset - last_offset :][:length]
    else:
        body = await read_what_can_be(file, offset, length)
    content = _unpacked(body) if crc32c(body) == footer.table_crc else None
    if content is None:
        return None
    # The table follows its record's header and the last mark.
    return LoadedTable(content, offset - 2 * RECORD_HEADER_BYTES, footer.table_crc)


async def read_table_file(
    disk: Disk, file_id: int, identity: JournalIdentity, header: FileHeader | None
) -> LoadedTable | None:
    """The table in the file's table file, if intact and matching. NotFoundError."""
    file = await disk.open(table_file_name(file_id))
    found = TableFile.decode(await read_what_can_be(file, 0, file.size_bytes), file_id)
    await file.close()
    if found is None or found.instance != identity.instance:
        _log.warning("%s: damaged, or written by another node; ignored", file.name)
        return None
    if header is not None and header.salt != found.salt:
        _log.warning("%s: does not match its journal file; ignored", file.name)
        return None
    content = _unpacked(found.body)
    return None if content is None else LoadedTable(content, found.proven_bytes, 0)


def _unpacked(body: bytes) -> FoundTable | None:
    try:
        return FoundTable(body)
    except DamagedBytesError:
        return None
