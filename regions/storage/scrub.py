"""Scrub: read everything stored from disk in the background, and verify checksums.

So rot in data that nobody reads is found while other copies are still good. A damaged entry
counts as CORRUPT from then on for every reader, so that recovery's add of the entry is stored
again. A restart forgets the progress of a round. A new round begins some minutes after each
start, so that restarts cannot put the scrub off for ever.

Rules: PROTOCOL J18.
"""

import logging

import attrs
import trio

from geolog.ledger.copying.rate_limit import RateLimit
from geolog.protocol.messages import Answer
from regions.storage.disk import TooManyOpenFilesError
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.protocol.sweep import Sweep
from regions.storage.protocol.tables import EntryRow, SealedTable
from regions.storage.sealed_files import SealedFiles

_log = logging.getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_ROWS_MAX = 256
_ROWS_STEP = 4096
_FIRST_PAUSE_S = 600.0
_ENTRY_BYTES_MIN = 1024
"""Minimum cost of an entry: for small ones the time depends on their number, not their
bytes."""


@attrs.define
class ScrubCounts:
    """Counts of the scrub's reads since the start."""

    rounds: int = 0
    entries: int = 0
    bytes: int = 0
    damaged_entries: int = 0
    damaged_tables: int = 0
    """Tables that are damaged on disk now."""


class Scrub:
    """Reads one data directory, round after round."""

    def __init__(
        self, entries: EntryStore, sealed: SealedFiles, *, rate: RateLimit, interval_s: float
    ) -> None:
        self._entries = entries
        self._sealed = sealed
        self._rate = rate
        self._interval_s = interval_s
        self.counts = ScrubCounts()

    async def run(self) -> None:
        """Begin a round each interval; never returns."""
        due_s = trio.current_time() + min(self._interval_s / 2, _FIRST_PAUSE_S)
        while True:
            await trio.sleep_until(due_s)
            due_s = trio.current_time() + self._interval_s
            try:
                await self.read_all()
            except TooManyOpenFilesError as error:
                _log.warning("scrub: round ended early: %s", error)

    async def read_all(self) -> None:
        """Run one round over the files that are sealed now."""
        damaged_before = self.counts.damaged_entries
        for source in self._entries.files[:-1]:
            await self._read_file(source)
            present = {each.file_id for each in self._entries.files}
            self._sealed.forget_gone(present)
            self.counts.damaged_tables = len(self._sealed.damaged_tables)
        self.counts.rounds += 1
        found_count = self.counts.damaged_entries - damaged_before
        if found_count:
            _log.error("scrub: %d damaged entries found; reported for repair", found_count)

    async def _read_file(self, source: JournalFile) -> None:
        assert isinstance(source.table, SealedTable)
        if self._is_gone(source):
            return
        await self._rate.wait(source.table.size_bytes)
        await self._sealed.is_table_intact(source)
        sweep = Sweep(
            source.table, size_bytes=source.file.size_bytes, window_bytes=_WINDOW_BYTES
        )
        for _ in sweep.prepare(step=_ROWS_STEP):
            await trio.lowlevel.checkpoint()
        for window in sweep.windows(rows_max=_ROWS_MAX):
            if self._is_gone(source):
                return
            rows = [row for row in window if self._entries.is_live(source, row)]
            await self._read_rows(source, rows)

    async def _read_rows(self, source: JournalFile, rows: list[EntryRow]) -> None:
        await self._rate.wait(sum(max(row.place.length, _ENTRY_BYTES_MIN) for row in rows))
        answers = await self._entries.read_rows(source, rows, is_from_disk=True)
        for row, answer in zip(rows, answers, strict=True):
            self.counts.entries += 1
            self.counts.bytes += row.place.length
            if answer.answer is Answer.CORRUPT and self._entries.is_live(source, row):
                self.counts.damaged_entries += 1

    def _is_gone(self, source: JournalFile) -> bool:
        return all(each.file_id != source.file_id for each in self._entries.files)
