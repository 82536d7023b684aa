"""Create and remove journal files: whole, synced and named, or not at all.

Rules: PROTOCOL J6.
"""

from collections.abc import Sequence
from contextlib import suppress

from regions.storage.disk import Disk, DiskFile, DiskFullError
from regions.storage.protocol.records import (
    DATA_OFFSET,
    MARK,
    RECORD_HEADER_BYTES,
    Body,
    FileHeader,
    JournalRecord,
    RecordCodec,
    file_name,
    unfinished_name,
)
from regions.storage.protocol.table_files import table_file_name
from topology.errors import NotFoundError


class OpenFile:
    """The journal file being written, and the offset of its next record."""

    def __init__(self, file: DiskFile, codec: RecordCodec, end: int) -> None:
        self.file = file
        self.codec = codec
        self.end = end

    @property
    def is_empty(self) -> bool:
        """Whether no record was written to it."""
        return self.end == DATA_OFFSET


async def create_file(
    disk: Disk, header: FileHeader, records: Sequence[tuple[JournalRecord, Body]] = ()
) -> OpenFile:
    """Create a journal file with these records, proven by a mark; durable including its name.

    DiskFullError reports how much space it needs, and leaves nothing of it behind.
    """
    codec = RecordCodec(header.file_id, header.salt)
    buffers, _, end = codec.pack_all(DATA_OFFSET, records)
    name = unfinished_name(header.file_id)
    unfinished = await disk.create(name)
    try:
        await unfinished.write_synced(0, [header.encode(), *buffers])
        if records:
            await unfinished.write_synced(end, [codec.pack(end, MARK)])
    except DiskFullError as error:
        await unfinished.close()
        await disk.remove(name)
        raise await too_full(
            disk, "A journal file", end + RECORD_HEADER_BYTES, error
        ) from error
    await unfinished.close()
    await disk.rename(name, file_name(header.file_id))
    await disk.sync_directory()
    return OpenFile(await disk.open(file_name(header.file_id)), codec, end)


async def too_full(
    disk: Disk, what: str, needed_bytes: int, error: DiskFullError
) -> DiskFullError:
    """The error of a start that lacks space for a file, with what to do."""
    return DiskFullError(
        f"{error}. {what} needs {needed_bytes} bytes in {disk};"
        f" {await disk.free_bytes()} are free. Free some space on this disk and restart the"
        " node; nothing is lost"
    )


async def remove_journal_file(disk: Disk, file_id: int) -> None:
    """Remove a journal file and its table file; this does not sync the directory."""
    await disk.remove(file_name(file_id))
    with suppress(NotFoundError):  # Only files left by a crash have one.
        await disk.remove(table_file_name(file_id))
