"""The journal, which is the store: one write and one sync for everything that waited.

Theory of operation. Records gather in a group while the previous group is being written. Each
group is one write, preceded by a mark. The previous group is synced by then, so the mark truly
says that everything below it is on disk. After an idle while, a mark is written alone; the next
group begins at the same offset with the same mark.

A full file is sealed with its table. The next file records that file's length and the checksum
of its table. It is created whole and synced under another name, then renamed, so a half-made
file is never found. An open file allocates disk space ahead (`SpaceAhead`); sealing frees the
unused part.

A write has two ends. `begin_nowait` begins it in the turn of the task that appended, and the
disk's callback completes it: it answers, and begins the next group. So one append costs a node
two turns of its loop. `run` is woken only for what must wait for more than one write: another
file, more disk space, a mark, an error. While it works, nothing else begins a write.

Invariants.
1. One write at a time; a callback of `when_synced` runs only after a sync that covers
   everything appended before it (law 2, planted bug 13).
2. After any error of a write or sync, nothing is called back, written or synced again (planted
   bug 14): `run` raises, and the node ends.
3. A file's name is durable before the first answer that depends on it (planted bug 15).

Rules: PROTOCOL J1, J2, J5 and N4.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import trio

from geolog.protocol.ids import InstanceId
from regions.storage.disk import (
    Disk,
    DiskFailedError,
    DiskFullError,
    TooManyOpenFilesError,
)
from regions.storage.durations import Durations, DurationStatistics
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.open_file import OpenFile, create_file, remove_journal_file
from regions.storage.protocol.known_files import FileRow, KnownFiles
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.promises import TableBuild
from regions.storage.protocol.records import (
    MARK,
    MARK_LAST,
    RECORD_HEADER_BYTES,
    Body,
    FileHeader,
    JournalRecord,
    RecordKind,
    retire_record,
    table_record,
)
from regions.storage.protocol.tables import (
    FOOTER_BYTES,
    TABLE_ROW_BYTES_MAX,
    Footer,
    OpenTable,
)
from regions.storage.space_ahead import SpaceAhead

_log = logging.getLogger(__name__)

_RECORD_HELD_BYTES = 768
"""Memory overhead of a record in flight, besides its body (measured: 709 for an entry)."""
_DESCRIPTOR_RETRY_S = 0.1
_SEAL_ROWS_MAX = 2048
"""Table rows to sort before other tasks get a turn: about a millisecond of work."""
_CALL_HELD_BYTES = 512
"""Memory of an answer that waits for a sync (measured: 417)."""


@attrs.frozen
class JournalIdentity:
    """The owner of a journal."""

    instance: InstanceId
    cluster_id: str
    node_id: str
    """Name of the node, for errors."""
    directory: str = "its data directory"
    """Name of the directory, for errors."""


@attrs.frozen(order=True)
class JournalEnd:
    """How far a journal reaches: its newest file, and how much of that is synced."""

    file_id: int
    offset: int


@attrs.define
class _Group:
    """Records that are written and synced together."""

    records: list[tuple[JournalRecord, Body]] = attrs.field(factory=list)
    bytes: int = 0
    held_bytes: int = 0
    """Memory that the group takes."""
    on_synced: list[Callable[[], None]] = attrs.field(factory=list)


@attrs.frozen
class _Write:
    """A group on its way to the disk."""

    group: _Group
    opened: OpenFile
    records: Sequence[tuple[JournalRecord, Body]]
    """A mark, and the group's own."""
    buffers: Sequence[bytes | bytearray | memoryview]
    body_offsets: Sequence[int]
    end: int
    """Where the file ends afterwards."""
    start_s: float


@attrs.frozen
class JournalStatistics:
    """Counts of the journal's work, and the memory it holds."""

    groups_count: int
    records_count: int
    written_bytes: int
    in_flight_bytes: int
    file_id: int
    file_bytes: int
    syncs: DurationStatistics
    """Duration of a group's write and sync, as the event loop sees it."""


class Journal:
    """Takes records, and reports when they are on disk. `run` does the work."""

    def __init__(
        self,
        disk: Disk,
        identity: JournalIdentity,
        ledgers: Ledgers,
        entries: EntryStore,
        files: KnownFiles,
        opened: OpenFile,
        *,
        file_bytes_max: int,
        group_bytes_max: int,
        in_flight_bytes_max: int,
        mark_idle_s: float,
        ahead_bytes: int,
        salt_source: Callable[[int], bytes],
    ) -> None:
        self._disk = disk
        self._identity = identity
        self._ledgers = ledgers
        self._entries = entries
        self._files = files
        self._open = opened
        self._file_bytes_max = file_bytes_max
        self._group_bytes_max = group_bytes_max
        self._in_flight_bytes_max = in_flight_bytes_max
        self._mark_idle_s = mark_idle_s
        self._space = SpaceAhead(disk, min(ahead_bytes, file_bytes_max // 4))
        self._salt_source = salt_source
        self._waiting: deque[_Group] = deque()
        self._writing: _Group | None = None
        self._in_flight_bytes = self._held_bytes = 0
        self.appended_bytes = 0
        """Bytes of records taken since the start, written or in flight."""
        self.postpones_roll = False
        """Whether the open file grows past its size: the disk is too full for another file."""
        self._wants_space = False
        self._groups_begun_count = 0
        self._has_failed = False
        self._failure: Exception | None = None
        """Error of a write or of what it called back, for `run` to raise."""
        self._is_running = False
        self._is_run_busy = False
        """Whether `run` uses the file, so that no other task may begin a write."""
        self._is_marked = opened.is_empty
        """Whether no mark is due until something is written."""
        self._written_s = 0.0
        """When the last write was complete."""
        self._work = trio.Event()
        self._written: trio.Event | None = None
        self._room = trio.Event()
        self._sync_durations = Durations()
        self._groups_count = self._records_count = self._written_bytes = 0

    def statistics(self) -> JournalStatistics:
        """Current counts."""
        return JournalStatistics(
            groups_count=self._groups_count,
            records_count=self._records_count,
            written_bytes=self._written_bytes,
            in_flight_bytes=self._in_flight_bytes,
            file_id=self._open.codec.file_id,
            file_bytes=self._open.end,
            syncs=self._sync_durations.statistics(),
        )

    @property
    def files(self) -> KnownFiles:
        """The files before the open one: lengths, checksums of tables, and retired ids."""
        return self._files

    @property
    def file_id(self) -> int:
        """Id of the open file. Records appended now may still go to the next one."""
        return self._open.codec.file_id

    @property
    def end(self) -> JournalEnd:
        """How far the journal is on disk."""
        return JournalEnd(self._open.codec.file_id, self._open.end)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of entries that are not on disk yet."""
        return self._in_flight_bytes

    @property
    def seal_bytes(self) -> int:
        """Approximate bytes that sealing the open file now would write; never much too low."""
        promised_rows = len(self._ledgers) + len(self._files)
        promised_rows += self._ledgers.deleted.intervals_count
        return TABLE_ROW_BYTES_MAX * (promised_rows + self._entries.rows_newest + 1000)

    @property
    def is_space_refused(self) -> bool:
        """Whether the disk refuses more space, though it may report free space."""
        return self._space.is_refused

    def ask_for_space(self) -> None:
        """Allow asking the disk again after a refusal; it is asked later, not here."""
        if self._space.is_refused:
            self._wants_space = True
            self._work.set()

    @property
    def group_newest(self) -> int:
        """Number of the group that the last record went to; group numbers rise."""
        return self._groups_begun_count

    @property
    def _waiting_bytes(self) -> int:
        return sum(group.bytes for group in self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether everything appended is on disk."""
        return not self._waiting and self._writing is None

    @property
    def is_full(self) -> bool:
        """Whether data in flight has reached its memory bound, or nearly fills its space."""
        if self._held_bytes >= self._in_flight_bytes_max:
            return True
        writing_bytes = 0 if self._writing is None else self._writing.bytes
        unwritten_bytes = writing_bytes + self._waiting_bytes
        return unwritten_bytes > 0 and self._space.is_short(self._open.end + unwritten_bytes)

    def append_nowait(
        self, record: JournalRecord, body: Body = b"", *, is_begun_soon: bool = False
    ) -> None:
        """Add one record to the next group.

        is_begun_soon: the caller calls `begin_nowait` before it waits for anything, so that
        `run` need not be woken.
        """
        if not self._waiting or self._waiting[-1].bytes >= self._group_bytes_max:
            self._waiting.append(_Group())
            self._groups_begun_count += 1
        if self._writing is None and not is_begun_soon:
            self._work.set()
        group = self._waiting[-1]
        group.records.append((record, body))
        group.bytes += RECORD_HEADER_BYTES + record.body_length
        self._in_flight_bytes += record.body_length
        self._hold(group, _RECORD_HELD_BYTES + record.body_length)
        self.appended_bytes += RECORD_HEADER_BYTES + record.body_length
        if record.kind is RecordKind.ENTRY:
            self._entries.on_persist(record, body)

    async def retire(self, file_id: int) -> None:
        """Remove a file that nothing needs: its live entries were copied and synced before.

        Everything it promised must be in an intact table of a later file.
        """
        row = self._files.find(file_id)
        assert row is not None, f"journal file {file_id:016x} is not before the open one"
        self._files.retire(file_id)
        self.append_nowait(retire_record(file_id))
        await self.wait_synced()
        self._entries.remove_file(file_id)
        await remove_journal_file(self._disk, file_id)
        await self._disk.sync_directory()

    def when_synced(self, call: Callable[[], None]) -> None:
        """Call when everything appended so far is on disk; at once if it already is."""
        group = self._waiting[-1] if self._waiting else self._writing
        if group is None:
            call()
            return
        group.on_synced.append(call)
        self._hold(group, _CALL_HELD_BYTES)

    async def wait_synced(self) -> None:
        """Wait until everything appended so far is on disk."""
        synced = trio.Event()
        self.when_synced(synced.set)
        await synced.wait()

    async def wait_room(self) -> None:
        """Wait until memory in use is below the bound."""
        while self.is_full:
            await self._room.wait()

    def begin_nowait(self) -> None:
        """Begin to write what waits, unless a write is under way: that one's end begins it.

        `run` is woken instead if more than this write is due, such as another file.
        """
        if not self._waiting or self._writing is not None:
            return
        group = self._waiting[0]
        if (
            self._is_running
            and not self._is_run_busy
            and not self._has_failed
            and not self._is_too_long(group)
            and self._space.has_reached(self._open.file, self._end_with_waiting)
        ):
            self._begin(self._waiting.popleft())
        else:
            self._work.set()

    async def run(self) -> None:
        """Write and sync new records; never returns. An error of the disk ends it for good."""
        try:
            await self._space.reach(self._open.file, self._open.end)
            self._written_s = trio.current_time()
            self._is_running = True
            while True:
                await self._wait_work()
                # Cancellation takes effect between groups, never within, so `finish` can
                # follow.
                with trio.CancelScope(shield=True):
                    await self._do_work()
        except trio.Cancelled:
            self._is_running = False
            await self._wait_written()
            self._raise_failure()
            raise
        except Exception:
            self._has_failed = True
            raise

    async def finish(self) -> None:
        """After `run` was cancelled, write what waits and seal; no-op after a failure."""
        await self._wait_written()
        if self._has_failed:
            return
        try:
            while self._waiting:
                await self._begin_next()
                await self._wait_written()
                self._raise_failure()
            await self._seal()
        except DiskFullError as error:
            # Nothing that was answered depends on it. The next start proceeds as after a crash.
            self._has_failed = True
            _log.warning("journal file left unsealed: %s; the next start replays it", error)

    async def _wait_work(self) -> None:
        """Wait for work of `run`; when idle, write a mark that says everything is synced."""
        while not self._work.is_set():
            if self._is_marked:
                await self._work.wait()
                return
            now_s = trio.current_time()
            begin_s = self._written_s if self._writing is None else now_s
            if now_s >= begin_s + self._mark_idle_s:
                await self._mark()
            else:
                with trio.move_on_at(begin_s + self._mark_idle_s):
                    await self._work.wait()

    async def _mark(self) -> None:
        self._is_run_busy = True
        mark = self._open.codec.pack(self._open.end, MARK)
        await self._open.file.write(self._open.end, [mark])
        self._is_marked = True
        self._is_run_busy = False

    async def _do_work(self) -> None:
        """Do what wakes `run`."""
        self._work = trio.Event()
        self._raise_failure()
        if not self._wants_space and (not self._waiting or self._writing is not None):
            return  # The end of the write under way begins what waits.
        self._is_run_busy = True
        await self._wait_written()
        self._raise_failure()
        if self._wants_space:
            self._wants_space = False
            await self._space.reach(self._open.file, self._open.end, is_retry=True)
        if self._waiting:
            await self._begin_next()
        self._is_run_busy = False

    async def _begin_next(self) -> None:
        """Begin to write the next group, after all that must be there before."""
        group = self._waiting.popleft()
        self._writing = group  # Stays set if the disk fails.
        if self._is_too_long(group) and await self._has_room_to_roll():
            await self._roll()
        await self._space.reach(self._open.file, self._end_with_waiting)
        self._tell_room()
        self._begin(group)

    def _begin(self, group: _Group) -> None:
        self._writing = group
        opened = self._open
        records = [(MARK, b""), *group.records]
        buffers, body_offsets, end = opened.codec.pack_all(opened.end, records)
        self._begin_write(
            _Write(group, opened, records, buffers, body_offsets, end, trio.current_time())
        )

    def _begin_write(self, write: _Write) -> None:
        try:
            write.opened.file.begin_write_synced(
                write.opened.end, write.buffers, partial(self._on_written, write)
            )
        except (DiskFailedError, DiskFullError) as error:
            self._fail(error)

    def _on_written(self, write: _Write, error: Exception | None) -> None:
        """End a write. It raises nothing: that would end the process without a reason."""
        if error is None:
            try:
                self._complete(write)
            except Exception as unexpected:  # noqa: BLE001 - `run` raises it.
                error = unexpected
        if error is not None:
            self._fail(error)
        if self._written is not None:
            self._written.set()
            self._written = None

    def _complete(self, write: _Write) -> None:
        """Note that a group is on disk, answer, and begin the next."""
        self._written_s = trio.current_time()
        self._sync_durations.note(self._written_s - write.start_s)
        self._groups_count += 1
        self._records_count += len(write.group.records)
        self._written_bytes += write.end - write.opened.end
        write.opened.end = write.end
        for (record, body), body_offset in zip(write.records, write.body_offsets, strict=True):
            self._in_flight_bytes -= record.body_length
            if record.kind is RecordKind.ENTRY:
                self._entries.on_synced(record, body, body_offset)
        self._writing = None
        self._held_bytes -= write.group.held_bytes
        for call in write.group.on_synced:
            call()
        self._tell_room()
        if self._is_marked:
            self._is_marked = False
            self._work.set()  # So that `run` counts the time to the next mark.
        self.begin_nowait()

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._failure = error
        self._work.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _wait_written(self) -> None:
        """Wait until no write is under way; it cannot be undone, so neither can the wait."""
        with trio.CancelScope(shield=True):
            while self._writing is not None and not self._has_failed:
                if self._written is None:
                    self._written = trio.Event()
                await self._written.wait()

    def _is_too_long(self, group: _Group) -> bool:
        """Whether another file is due before this group."""
        return self._open.end + group.bytes > self._file_bytes_max and not self._open.is_empty

    @property
    def _end_with_waiting(self) -> int:
        """Where the open file would end after everything unwritten, and one mark."""
        writing_bytes = 0 if self._writing is None else self._writing.bytes
        return self._open.end + RECORD_HEADER_BYTES + writing_bytes + self._waiting_bytes

    async def _has_room_to_roll(self) -> bool:
        """Whether the table fits behind the open file; otherwise that file keeps growing."""
        if self.postpones_roll or self._space.is_refused:
            return False
        await self._space.reach(self._open.file, self._open.end + self.seal_bytes)
        return not self._space.is_refused

    def _tell_room(self) -> None:
        if not self.is_full:
            self._room.set()
            self._room = trio.Event()

    def _hold(self, group: _Group, count_bytes: int) -> None:
        group.held_bytes += count_bytes
        self._held_bytes += count_bytes

    async def _roll(self) -> None:
        sealed = await self._seal()
        header = FileHeader(
            sealed.file_id + 1,
            self._identity.instance,
            self._identity.cluster_id,
            self._salt_source(8),
            sealed.file_id,
            sealed.length_bytes,
            sealed.table_crc,
        )
        self._open = await self._create_next(header)
        self._entries.add_file(JournalFile(header.file_id, self._open.file, OpenTable()))
        _log.info("journal file %016x: begun", header.file_id)

    async def _create_next(self, header: FileHeader) -> OpenFile:
        """Create the next file once a descriptor for it is free; everything else waits."""
        has_warned = False
        while True:
            try:
                return await create_file(self._disk, header)
            except TooManyOpenFilesError as error:
                if not has_warned:
                    _log.warning("journal: %s; storing waits for a free descriptor", error)
                has_warned = True
                await trio.sleep(_DESCRIPTOR_RETRY_S)

    async def _seal(self) -> FileRow:
        """Seal the open file with its table; other tasks get turns while that is built."""
        opened = self._open
        build = TableBuild(self._ledgers, self._files, self._entries.open_table)
        is_long = len(self._ledgers) + self._entries.rows_newest > _SEAL_ROWS_MAX
        for _ in build.steps(rows_max=_SEAL_ROWS_MAX):
            if is_long:
                await trio.lowlevel.checkpoint()
        body = build.pieces
        record = table_record(sum(map(len, body)), build.crc)
        headers, (_, body_offset), end = opened.codec.pack_all(
            opened.end, [(MARK_LAST, b""), (record, b"")]
        )
        footer = Footer(opened.codec.file_id, body_offset, record.body_length, record.body_crc)
        end += FOOTER_BYTES
        if end < opened.file.size_bytes:
            # Before the last write, so that the footer is at the end whenever it is present.
            await opened.file.truncate(end)
        await opened.file.write_synced(opened.end, [*headers, *body, footer.encode()])
        opened.file.rest()
        opened.end = end
        self._entries.seal_last(build.table)
        row = FileRow(opened.codec.file_id, opened.end, record.body_crc)
        self._files.keep(row)
        return row
