"""Write table files and remove unneeded files at a start."""

import logging
from collections.abc import Sequence
from contextlib import suppress

from regions.storage.disk import Disk, DiskFullError
from regions.storage.found_files import FoundFile
from regions.storage.journal import JournalIdentity
from regions.storage.open_file import remove_journal_file, too_full
from regions.storage.protocol.table_files import (
    TableFile,
    table_file_name,
    unfinished_table_file_name,
)
from regions.storage.protocol.tables import Promises, encode_table
from regions.storage.replay import PendingTable
from topology.errors import NotFoundError

_log = logging.getLogger(__name__)


async def write_table_files(
    disk: Disk, identity: JournalIdentity, tables: Sequence[PendingTable], promises: Promises
) -> None:
    """Write tables to table files next to their journal files.

    On a full disk, a table that would only save later starts a walk is left out. For a table
    that holds more than that, DiskFullError reports how much space it needs.
    """
    for each in tables:
        found = TableFile(
            identity.instance,
            each.salt,
            each.proven_bytes,
            encode_table(promises, each.entries),
        )
        content = found.encode(each.file_id)
        try:
            await _write_table_file(disk, each.file_id, content)
        except DiskFullError as error:
            with suppress(NotFoundError):  # The disk may have been too full even for the name.
                await disk.remove(unfinished_table_file_name(each.file_id))
            if each.is_needed:
                raise await too_full(disk, "A table file", len(content), error) from error
            _log.warning("table file not written: %s; the next start takes longer", error)
    if tables:
        await disk.sync_directory()


async def _write_table_file(disk: Disk, file_id: int, content: bytes) -> None:
    name = unfinished_table_file_name(file_id)
    file = await disk.create(name)
    try:
        await file.write_synced(0, [content])
    finally:
        await file.close()
    await disk.rename(name, table_file_name(file_id))


async def remove_unfinished(disk: Disk, names: Sequence[str]) -> None:
    """Remove unfinished files; a removal that power loss undoes happens again."""
    for name in names:
        await disk.remove(name)


async def remove_retired(disk: Disk, retired: Sequence[FoundFile]) -> None:
    """Remove files that were retired by a process that ended before it removed them."""
    for each in retired:
        _log.info("%s: removed; it was retired before this start", each.file.name)
        await each.file.close()
        await remove_journal_file(disk, each.file_id)
    if retired:
        await disk.sync_directory()
