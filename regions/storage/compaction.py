"""Compaction: copy the live entries of a sealed journal file to the open one, then remove it.

A crash at any step loses nothing, because of this order:
1. The copies are appended and synced while the old file is still there: each entry exists
twice.
2. A later group says that the file is retired. Its mark proves the copies. It is synced.
3. The file is removed, and the directory is synced.

After a crash before step 2 the next start finds both copies, and the newer one counts. After a
crash later than that, the start removes the file.

The table of each later file repeats what the file promised: epochs, fences, deletions, retired
files. The newest such table is read back and checked before any file goes. A file with a
damaged live entry stays until that entry is stored again. A file that lost part of its records
stays until the damage is settled. Then it goes, however much of it is live: a file that was
damaged once may be damaged again. Readers in the middle of a removed file keep it open.

Rules: PROTOCOL J10 and J13.
"""

import logging
from collections.abc import Callable
from functools import partial

import attrs
import trio

from geolog.ledger.copying.rate_limit import RateLimit
from geolog.protocol.messages import Answer
from regions.storage.disk import TooManyOpenFilesError
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.journal import Journal
from regions.storage.protocol.compaction import CompactionPolicy, FileUse, UseCount, choose_file
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import RECORD_HEADER_BYTES, copy_record
from regions.storage.protocol.sweep import Sweep
from regions.storage.protocol.tables import EntryRow, SealedTable
from regions.storage.sealed_files import SealedFiles

_log = logging.getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_ROWS_MAX = 256
_ROWS_STEP = 4096
"""Rows to look at before other tasks get a turn: about a millisecond of work."""


@attrs.define
class CompactionCounts:
    """Compaction counts since the start."""

    files_retired: int = 0
    retired_bytes: int = 0
    copied_entries: int = 0
    copied_bytes: int = 0
    files_held: int = 0
    """Files that cannot be compacted now because something in them is damaged."""


class Compaction:
    """Compacts the files of one data directory, one at a time."""

    def __init__(
        self,
        ledgers: Ledgers,
        entries: EntryStore,
        journal: Journal,
        sealed: SealedFiles,
        policy: CompactionPolicy,
        *,
        rate: RateLimit,
        room_bytes: Callable[[], int],
        pause_s: float,
    ) -> None:
        self._ledgers = ledgers
        self._entries = entries
        self._journal = journal
        self._sealed = sealed
        self._policy = policy
        self._rate = rate
        self._room_bytes = room_bytes
        self._pause_s = pause_s
        self._uses: dict[int, UseCount] = {}
        self.counts = CompactionCounts()

    async def run(self) -> None:
        """Compact the files worth compacting, with pauses between; never returns."""
        while True:
            try:
                while await self.compact_next():
                    pass
            except TooManyOpenFilesError as error:
                _log.warning("compaction: %s; retries after a pause", error)
            await trio.sleep(self._pause_s)

    async def compact_next(self) -> bool:
        """Compact one file. False if no file may go, or none is worth it now."""
        keeper = self._keeper()
        if keeper is None:
            return False
        uses = await self._uses_before(keeper)
        chosen = choose_file(uses, self._policy, room_bytes=self._room_bytes())
        if chosen is None:
            return False
        if not await self._sealed.is_table_intact(keeper):
            return True  # The table of an older file may be intact.
        source = next(each for each in self._entries.files if each.file_id == chosen.file_id)
        is_whole = not chosen.live_bytes or await self._copy(source)
        await self._journal.wait_synced()
        if not is_whole:
            return True  # This file is now held; another may be worth compacting.
        await self._journal.retire(source.file_id)
        self._uses.pop(source.file_id, None)
        self.counts.files_retired += 1
        self.counts.retired_bytes += source.file.size_bytes
        _log.info("journal file %016x: compacted and removed (%s)", source.file_id, chosen)
        return True

    def _keeper(self) -> JournalFile | None:
        """The newest sealed file whose table repeats the promises of all files before it."""
        sealed = self._entries.files[:-1]
        damaged = self._sealed.damaged_tables
        return next((each for each in reversed(sealed) if each.file_id not in damaged), None)

    async def _uses_before(self, keeper: JournalFile) -> list[FileUse]:
        """Usage of the files that may go: those before the one that keeps the promises."""
        uses, held_count = [], 0
        for source in self._entries.files:
            if source.file_id >= keeper.file_id:
                break
            if self._is_held(source.file_id):
                held_count += 1
            else:
                uses.append(await self._use_of(source))
        self.counts.files_held = held_count
        return uses

    def _is_held(self, file_id: int) -> bool:
        return self._entries.has_corrupt(file_id) or self._ledgers.damaged.is_in(file_id)

    async def _use_of(self, source: JournalFile) -> FileUse:
        assert isinstance(source.table, SealedTable)
        count = self._uses.setdefault(source.file_id, UseCount(source.table))
        for _ in count.count(step=_ROWS_STEP):
            await trio.lowlevel.checkpoint()
        return FileUse(
            source.file_id,
            count.stored_bytes,
            count.live_bytes(partial(self._entries.is_dead, source.file_id)),
            is_suspect=source.file_id in self._sealed.damaged_tables
            or self._ledgers.settled.is_in(source.file_id),
        )

    async def _copy(self, source: JournalFile) -> bool:
        """Append the file's live entries to the journal; False if some cannot be read."""
        assert isinstance(source.table, SealedTable)
        size_bytes = source.file.size_bytes
        sweep = Sweep(source.table, size_bytes=size_bytes, window_bytes=_WINDOW_BYTES)
        for _ in sweep.prepare(step=_ROWS_STEP):
            await trio.lowlevel.checkpoint()
        for window in sweep.windows(rows_max=_ROWS_MAX):
            rows = [row for row in window if self._entries.is_live(source, row)]
            if rows and not await self._copy_rows(source, rows):
                return False
        return True

    async def _copy_rows(self, source: JournalFile, rows: list[EntryRow]) -> bool:
        await self._rate.wait(sum(row.place.length + RECORD_HEADER_BYTES for row in rows))
        for row, answer in zip(rows, await self._entries.read_rows(source, rows), strict=True):
            await self._journal.wait_room()
            if not self._entries.is_live(source, row):
                continue  # Let go, or stored again, during the read.
            if answer.answer is not Answer.HAVE:
                return False
            place = row.place
            self._journal.append_nowait(
                copy_record(row.ledger, row.entry, place.length, place.crc), answer.body
            )
            self.counts.copied_entries += 1
            self.counts.copied_bytes += place.length
        return True
