"""What a start leaves behind in order: tables beside their files, no files of no use."""

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
from regions.storage.replay import TableBeside
from topology.errors import NotFoundError

_log = logging.getLogger(__name__)


async def write_table_files(
    disk: Disk, identity: JournalIdentity, tables: Sequence[TableBeside], promises: Promises
) -> None:
    """Put tables on disk, beside their journal files.

    On a full disk one that would only spare later starts a walk is left out. DiskFullError says
    how much one needs that holds more than that.
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
            with suppress(NotFoundError):  # It may have been full for the name alone.
                await disk.remove(unfinished_table_file_name(each.file_id))
            if each.is_needed:
                raise await too_full(disk, "A table file", len(content), error) from error
            _log.warning("a later start will take longer: %s", error)
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
    """Remove what was never finished; a removal that power loss undoes is made again."""
    for name in names:
        await disk.remove(name)


async def remove_retired(disk: Disk, retired: Sequence[FoundFile]) -> None:
    """Remove files that were retired by a process that ended before it removed them."""
    for each in retired:
        _log.info("%s was retired: it is removed", each.file.name)
        await each.file.close()
        await remove_journal_file(disk, each.file_id)
    if retired:
        await disk.sync_directory()
