"""What a start leaves behind in order: table files for what was walked, no files of no use."""

import logging
from collections.abc import Sequence

from regions.protocol.table_files import (
    TableFile,
    table_file_name,
    unfinished_table_file_name,
)
from regions.protocol.tables import Promises, encode_table
from regions.storage.disk import Disk, DiskFullError
from regions.storage.found_files import FoundFile
from regions.storage.journal import JournalIdentity
from regions.storage.open_file import remove_journal_file
from regions.storage.replay import Walked

_log = logging.getLogger(__name__)


async def write_table_files(
    disk: Disk, identity: JournalIdentity, walked: Sequence[Walked], promises: Promises
) -> None:
    """Spare later starts the walk. On a full disk it is left out."""
    for each in walked:
        try:
            await _write_table_file(disk, identity, each, promises)
        except DiskFullError as error:
            _log.warning("a later start will take longer: %s", error)
            await disk.remove(unfinished_table_file_name(each.file_id))
    if walked:
        await disk.sync_directory()


async def _write_table_file(
    disk: Disk, identity: JournalIdentity, walked: Walked, promises: Promises
) -> None:
    body = encode_table(promises, walked.entries)
    content = TableFile(identity.instance, walked.salt, walked.proven_bytes, body)
    name = unfinished_table_file_name(walked.file_id)
    file = await disk.create(name)
    try:
        await file.write_synced(0, [content.encode(walked.file_id)])
    finally:
        await file.close()
    await disk.rename(name, table_file_name(walked.file_id))


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
