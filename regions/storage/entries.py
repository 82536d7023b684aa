"""Find and read the entries of a node, wherever they are: in flight, cached, or in a file.

A body read from disk is verified against the checksum that came with it when it was added. A
body that does not match is remembered as CORRUPT, and never returned (law 15).

Rules: PROTOCOL C14, J18 and N8.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import attrs
from crc32c import crc32c

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Answer, EntryAnswer
from geolog.protocol.replica import NOTHING_HELD, Held
from regions.storage.disk import DiskFile, FilePieces, Piece, UnreadableError
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import JournalRecord
from regions.storage.protocol.tables import EntryPlace, EntryRow, OpenTable, SealedTable

_log = logging.getLogger(__name__)

_CACHED_HELD_BYTES = 240  # Memory overhead of a cached entry.
_READ_BYTES_MAX = 4 << 20
"""Bytes to read in one call to the disk; more would hold up others."""
_READ_GAP_BYTES_MAX = 16 << 10
"""Gap between two entries that is cheaper to read along than to skip with another call."""


@attrs.frozen(eq=False)
class JournalFile:
    """One journal file and where its entries lie."""

    file_id: int
    file: DiskFile
    table: OpenTable | SealedTable

    def reaches(self, place: EntryPlace) -> bool:
        """Whether the file is long enough to hold an entry there."""
        return place.offset + place.length <= self.file.size_bytes


@attrs.frozen
class _Found:
    """Where the body of an entry is: in memory, at an offset in a file, or nowhere."""

    answer: Answer
    length: int = 0
    body: bytes | memoryview | None = None
    source: JournalFile | None = None
    place: EntryPlace | None = None
    ledger: int = 0
    entry: int = 0

    def in_memory(self) -> EntryAnswer:
        """The answer for an entry that is in memory or nowhere.

        The body of an entry in flight is copied: it is a slice of a receive buffer, which a
        slow reader would keep alive.
        """
        return EntryAnswer(self.answer, bytes(self.body or b""))


@attrs.frozen(eq=False)
class _Run:
    """Entries adjacent in a file; without a file, those that need no read from disk."""

    source: JournalFile | None
    wanted: tuple[_Found, ...]

    @classmethod
    def of(cls, wanted: Sequence[_Found]) -> "_Run":
        """A run of these entries, which one call to the disk can read."""
        is_on_disk = wanted[0].place is not None and wanted[0].body is None
        return cls(wanted[0].source if is_on_disk else None, tuple(wanted))

    @property
    def piece(self) -> Piece:
        """Where in the file they are."""
        first, last = self.wanted[0].place, self.wanted[-1].place
        assert first is not None
        assert last is not None
        return first.offset, last.offset + last.length - first.offset


_ABSENT = _Found(Answer.ABSENT)
_UNKNOWN = _Found(Answer.UNKNOWN)
_CORRUPT = _Found(Answer.CORRUPT)


@attrs.frozen
class EntryStatistics:
    """Sizes of the index and the cache, and counts of damage found."""

    files_count: int
    entries_count: int
    index_bytes: int
    cached_bytes: int
    corrupt_count: int


class EntryStore:
    """All entries of a node. The last of `files` is the open one."""

    def __init__(self, ledgers: Ledgers, *, cached_bytes_max: int) -> None:
        self._ledgers = ledgers
        self._files: list[JournalFile] = []
        self._in_flight: dict[tuple[int, int], tuple[JournalRecord, bytes | memoryview]] = {}
        # By file and offset, oldest first. (A plain dict is slow to drop its first item.)
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._cached_bytes, self._cached_bytes_max = 0, cached_bytes_max
        # By ledger and entry: file and offset of damaged copies that no newer copy replaces.
        self._corrupt: dict[tuple[int, int], set[tuple[int, int]]] = {}
        # By ledger, a file and an offset: entries up to there were let go.
        self._let_go_at: dict[int, tuple[int, int]] = {}
        self.on_corrupt: Callable[[LedgerId, EntryId], None] = _tell_nobody
        """Called when an entry is first found damaged."""

    def statistics(self) -> EntryStatistics:
        """Current counts."""
        return EntryStatistics(
            files_count=len(self._files),
            entries_count=sum(len(each.table) for each in self._files),
            index_bytes=sum(each.table.size_bytes for each in self._files),
            cached_bytes=self._cached_bytes,
            corrupt_count=len(self._corrupt),
        )

    @property
    def files(self) -> tuple[JournalFile, ...]:
        """All journal files, oldest first."""
        return tuple(self._files)

    @property
    def rows_newest(self) -> int:
        """Entries of the newest file, also while it is sealed and the next has not begun."""
        return len(self._files[-1].table)

    @property
    def open_table(self) -> OpenTable:
        """Where the entries of the open file are."""
        table = self._files[-1].table
        assert isinstance(table, OpenTable)
        return table

    def add_file(self, added: JournalFile) -> None:
        """Add a newer file; its entries take precedence over those of older files."""
        self._files.append(added)

    def seal_last(self, table: SealedTable) -> None:
        """Note that the open file was sealed with this table."""
        self._files[-1] = attrs.evolve(self._files[-1], table=table)

    def remove_file(self, file_id: int) -> None:
        """Remove a sealed file; current readers can still read it."""
        self._files = [each for each in self._files if each.file_id != file_id]
        for key in [key for key, places in self._corrupt.items() if _is_in(places, file_id)]:
            del self._corrupt[key]
        begin = self._files[0].file_id, 0
        self._let_go_at = {one: at for one, at in self._let_go_at.items() if at > begin}

    def forget(self, ledger: LedgerId) -> None:
        """The ledger was deleted: damage to its entries no longer matters."""
        for key in [key for key in self._corrupt if key[0] == ledger]:
            del self._corrupt[key]

    def let_go(self, ledger: LedgerId) -> bool:
        """Give up all entries of the ledger stored so far; those stored later count.

        False, with no change, while some of them are still on their way to the disk.
        """
        if any(key[0] == ledger for key in self._in_flight):
            return False
        newest = self._files[-1]
        end = (
            newest.table.end if isinstance(newest.table, OpenTable) else newest.file.size_bytes
        )
        self._let_go_at[ledger] = newest.file_id, end
        self.forget(ledger)
        return True

    def is_dead(self, file_id: int, ledger: int, offset: int) -> bool:
        """Whether the ledger's data at this offset no longer counts: deleted, or let go."""
        if ledger in self._ledgers.deleted:
            return True
        at = self._let_go_at.get(ledger)
        return at is not None and (file_id, offset) <= at

    def has_corrupt(self, file_id: int) -> bool:
        """Whether the file has a damaged entry of which no newer copy is known."""
        return any(_is_in(places, file_id) for places in self._corrupt.values())

    def is_live(self, source: JournalFile, row: EntryRow) -> bool:
        """Whether this copy of an entry is the one that counts."""
        if self.is_dead(source.file_id, row.ledger, row.place.offset):
            return False
        if (row.ledger, row.entry) in self._in_flight:
            return False
        for newer in reversed(self._files):
            if newer.file_id == source.file_id:
                return True
            if newer.table.find(row.ledger, row.entry) is not None:
                return False
        return False

    async def read_rows(
        self, source: JournalFile, rows: Sequence[EntryRow], *, is_from_disk: bool = False
    ) -> list[EntryAnswer]:
        """Read these entries of the file, ordered by offset.

        `is_from_disk`: bypass the page cache too.
        """
        wanted = [
            _Found(
                Answer.HAVE, row.place.length, None, source, row.place, row.ledger, row.entry
            )
            for row in rows
        ]
        return await self._read(wanted, is_from_disk=is_from_disk)

    def on_persist(self, record: JournalRecord, body: bytes | memoryview) -> None:
        """Note that an entry was handed to the journal."""
        self._in_flight[record.ledger, record.entry] = record, body

    def on_synced(
        self, record: JournalRecord, body: bytes | memoryview, body_offset: int
    ) -> None:
        """Note that the entry is on disk, in the open file."""
        key = record.ledger, record.entry
        self.open_table.add(*key, body_offset, record.body_length, record.body_crc)
        if self._in_flight[key][0] is record:  # Not replaced meanwhile by another copy.
            del self._in_flight[key]
        self._corrupt.pop(key, None)
        if record.is_copy:
            return  # Nobody reads at the tail what compaction moves.
        # A copy, because the body is a slice of a receive buffer, which it would keep alive.
        self._cache[self._files[-1].file_id, body_offset] = bytes(body)
        self._cached_bytes += _CACHED_HELD_BYTES + len(body)
        while self._cached_bytes > self._cached_bytes_max:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= _CACHED_HELD_BYTES + len(oldest)

    async def close(self) -> None:
        """Close all files."""
        for each in self._files:
            await each.file.close()

    def held(self, ledger: LedgerId, entry: EntryId) -> Held:
        """The node's state for one entry, as far as known without reading it."""
        in_flight = self._in_flight.get((ledger, entry))
        if in_flight is not None:
            return Held(Answer.HAVE, in_flight[0].body_length, in_flight[0].body_crc)
        found = self._find(ledger, entry)
        if found.place is not None and found.answer is Answer.HAVE:
            return Held(Answer.HAVE, found.place.length, found.place.crc)
        return NOTHING_HELD if found is _ABSENT else Held(found.answer)

    def is_in_flight(self, ledger: LedgerId, entry: EntryId) -> bool:
        """Whether the newest copy of the entry still waits for the disk."""
        return (ledger, entry) in self._in_flight

    def answers(self, ledger: LedgerId, first: EntryId, count: int) -> tuple[Answer, ...]:
        """The node's answer for each of these entries, without reading them."""
        return tuple(self._find(ledger, first + step).answer for step in range(count))

    async def read(
        self,
        ledger: LedgerId,
        first: EntryId,
        count_max: int,
        bytes_max: int,
        *,
        is_from_disk: bool = False,
    ) -> tuple[EntryAnswer, ...]:
        """Read entries from `first` on: up to `bytes_max`, at least one; as in `ReadAnswer`.

        `is_from_disk` bypasses the tail cache and the page cache, and ignores entries still on
        their way to the disk: wait for those first.
        """
        wanted = self._within(ledger, first, count_max, bytes_max, is_from_disk=is_from_disk)
        return tuple(await self._read(wanted, is_from_disk=is_from_disk))

    def read_in_memory(
        self, ledger: LedgerId, first: EntryId, count_max: int, bytes_max: int
    ) -> tuple[EntryAnswer, ...] | None:
        """The same, if no body must be read from disk; else None. Cached bodies are shared."""
        answers: list[EntryAnswer] = []
        bytes_left = bytes_max
        for entry in range(first, first + count_max):
            found = self._find(ledger, entry)
            if answers and found.length > bytes_left:
                break
            if found.place is not None and found.body is None:
                return None
            bytes_left -= found.length
            answers.append(found.in_memory())
        return tuple(answers)

    def _within(
        self,
        ledger: LedgerId,
        first: EntryId,
        count_max: int,
        bytes_max: int,
        *,
        is_from_disk: bool,
    ) -> list[_Found]:
        wanted: list[_Found] = []
        bytes_left = bytes_max
        for entry in range(first, first + count_max):
            found = self._find(ledger, entry, is_from_disk=is_from_disk)
            if wanted and found.length > bytes_left:
                break
            bytes_left -= found.length
            wanted.append(found)
        return wanted

    def _find(self, ledger: int, entry: int, *, is_from_disk: bool = False) -> _Found:
        in_flight = self._in_flight.get((ledger, entry))
        if in_flight is not None and not is_from_disk:
            record, body = in_flight
            return _Found(Answer.HAVE, record.body_length, body)
        if ledger in self._ledgers.deleted:
            return _UNKNOWN
        for source in reversed(self._files):
            place = source.table.find(ledger, entry)
            if place is None:
                continue
            key = source.file_id, place.offset
            if self._let_go_at and key <= self._let_go_at.get(ledger, (0, 0)):
                break
            if self._corrupt and key in self._corrupt.get((ledger, entry), ()):
                return _CORRUPT
            cached = None if is_from_disk else self._cache.get(key)
            # A table file may name entries of a journal file that was cut since.
            answer = Answer.HAVE if source.reaches(place) else Answer.CORRUPT
            return _Found(answer, place.length, cached, source, place, ledger, entry)
        if in_flight is not None:
            return _UNKNOWN  # Added after the wait for earlier adds.
        replica = self._ledgers.replica_of(LedgerId(ledger))
        return _UNKNOWN if replica.is_in_doubt or replica.is_let_go else _ABSENT

    async def _read(self, wanted: Sequence[_Found], *, is_from_disk: bool) -> list[EntryAnswer]:
        """Answers for the entries, with one call to the disk for each file.

        The first call that must wait for the disk has it begin with the other files, too.
        """
        runs = list(_runs(wanted))
        by_source: dict[JournalFile, list[_Run]] = {}
        for run in runs:
            if run.source is not None:
                by_source.setdefault(run.source, []).append(run)
        pieces = [(one.file, [run.piece for run in runs]) for one, runs in by_source.items()]
        if is_from_disk:
            for file, forgotten in pieces:
                await file.forget_cached(forgotten)
        contents: dict[_Run, bytes | memoryview] = {}
        for place, on_disk in enumerate(by_source.values(), start=1):
            contents |= await _contents(on_disk, *pieces[place - 1], soon=pieces[place:])
        answers: list[EntryAnswer] = []
        for run in runs:
            if run in contents:
                answers += self._checked_run(run, memoryview(contents[run]))
            elif run.source is None:
                answers += [found.in_memory() for found in run.wanted]
            else:
                answers += await self._read_one_by_one(run)
        return answers

    async def _read_one_by_one(self, run: _Run) -> list[EntryAnswer]:
        """Find which of these entries the disk cannot read."""
        answers: list[EntryAnswer] = []
        for found in run.wanted:
            single = _Run(run.source, (found,))
            content = b""
            try:
                assert run.source is not None
                content = await run.source.file.read(*single.piece)
            except UnreadableError as error:
                _log.error("%s; the entry counts as damaged", error)
            answers += self._checked_run(single, memoryview(content))
        return answers

    def _checked_run(self, run: _Run, content: memoryview) -> list[EntryAnswer]:
        answers: list[EntryAnswer] = []
        start, _ = run.piece
        for found in run.wanted:
            assert run.source is not None
            assert found.place is not None
            offset = found.place.offset - start
            body = content[offset : offset + found.place.length]
            answers.append(self._checked(run.source, found, found.place, body))
        return answers

    def _checked(
        self, source: JournalFile, found: _Found, place: EntryPlace, body: memoryview
    ) -> EntryAnswer:
        if len(body) == place.length and crc32c(body) == place.crc:
            return EntryAnswer(Answer.HAVE, body)
        row = EntryRow(LedgerId(found.ledger), EntryId(found.entry), place)
        if self.is_live(source, row):
            self._note_corrupt(source, row)
        return EntryAnswer(Answer.CORRUPT)

    def _note_corrupt(self, source: JournalFile, row: EntryRow) -> None:
        places = self._corrupt.setdefault((row.ledger, row.entry), set())
        place = source.file_id, row.place.offset
        if place in places:
            return
        places.add(place)
        _log.error(
            "journal file %016x: checksum mismatch, entry %d of ledger %d (%d bytes at %d); the"
            " copy is CORRUPT",
            source.file_id,
            row.entry,
            row.ledger,
            row.place.length,
            row.place.offset,
        )
        self.on_corrupt(row.ledger, row.entry)


def _tell_nobody(_ledger: LedgerId, _entry: EntryId) -> None:
    """Ignore damage: nobody listens."""


def _is_in(places: set[tuple[int, int]], file_id: int) -> bool:
    return any(place[0] == file_id for place in places)


async def _contents(
    runs: Sequence[_Run],
    file: DiskFile,
    pieces: Sequence[Piece],
    *,
    soon: Sequence[FilePieces] = (),
) -> dict[_Run, bytes | memoryview]:
    """The bytes of these runs of one file, except runs that the disk cannot fully read."""
    try:
        found = await file.read_many(pieces, soon=soon)
    except UnreadableError:
        if len(runs) == 1:
            return {}
        contents: dict[_Run, bytes | memoryview] = {}
        for run in runs:
            contents |= await _contents([run], file, [run.piece])
        return contents
    return dict(zip(runs, found, strict=True))


def _runs(wanted: Sequence[_Found]) -> Iterator[_Run]:
    """The entries in order, grouped into runs that are adjacent in a file or in memory."""
    run: list[_Found] = []
    for found in wanted:
        if run and not _is_one_run(run[0], run[-1], found):
            yield _Run.of(run)
            run = []
        run.append(found)
    if run:
        yield _Run.of(run)


def _is_one_run(first: _Found, last: _Found, found: _Found) -> bool:
    if first.place is None or last.place is None or found.place is None:
        return False
    if first.body is not None or found.body is not None or found.source is not first.source:
        return False
    gap = found.place.offset - (last.place.offset + last.place.length)
    length = found.place.offset + found.place.length - first.place.offset
    return 0 <= gap <= _READ_GAP_BYTES_MAX and length <= _READ_BYTES_MAX
