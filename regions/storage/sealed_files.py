"""Check that the tables of sealed journal files are still readable and unchanged."""

import logging

from regions.storage.disk import Disk
from regions.storage.entries import JournalFile
from regions.storage.found_files import read_table, read_table_file
from regions.storage.journal import JournalIdentity
from regions.storage.protocol.tables import SealedTable
from topology.errors import NotFoundError

_log = logging.getLogger(__name__)


class SealedFiles:
    """Reads tables back, and remembers the damaged ones."""

    def __init__(self, disk: Disk, identity: JournalIdentity) -> None:
        self._disk = disk
        self._identity = identity
        self.damaged_tables: set[int] = set()
        """Files still present whose tables were damaged at the last check."""

    async def is_table_intact(self, source: JournalFile) -> bool:
        """Read the file's table from disk, at its end or in its table file, and compare it."""
        is_intact = await self._is_as_written(source)
        if is_intact:
            self.damaged_tables.discard(source.file_id)
        elif source.file_id not in self.damaged_tables:
            self.damaged_tables.add(source.file_id)
            _log.error("%s: table damaged; the file will be compacted", source.file.name)
        return is_intact

    def forget_gone(self, present: set[int]) -> None:
        """Forget files that are gone."""
        self.damaged_tables &= present

    async def _is_as_written(self, source: JournalFile) -> bool:
        try:
            found = await read_table(source.file, source.file_id)
            if found is None:
                found = await read_table_file(self._disk, source.file_id, self._identity, None)
        except NotFoundError:
            return False
        assert isinstance(source.table, SealedTable)
        return found is not None and found.content.entries.rows == source.table.rows
