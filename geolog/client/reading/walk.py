"""Walks over a partition's entries, segment after segment, up to an end or for ever.

Each entry from a replica is checked against the entry that must come next. Its header has
segment, entry and first sequence, so an entry from elsewhere is detected.

A ledger's record may change during the read: its writer replaces a member, or a copier moves
closed entries. A reader with an old record may ask nodes that have nothing. So the record is
read again before entries count as lost (`LedgerReader`), and from time to time while entries do
not come. `LedgerWatch` reports changes of an open ledger.

A segment may be trimmed at any moment. The walk then goes on where the partition begins, and
reports the gap.

Rules: PROTOCOL H10, H14, H23, R1, R7, R10, R11 and R16.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.reading.gone import TrimmedRun, runs_gone
from geolog.client.reading.ledger_watch import LedgerWatch
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.read_range import Begin
from geolog.client.reading.scan import MirrorGoneError, PartitionScan
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.ledger.reading.ledger_tail import LedgerTail
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.home_record import Fork, branch_point, fork_before_place
from geolog.protocol.ids import DLSN, NO_ENTRY, EntryId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import SegmentRecord
from topology.errors import (
    ConflictError,
    DamagedBytesError,
    DataLostError,
    GeologError,
    NoSuchStreamError,
)

_MOVED_LOOK_S = 3.0
"""Read the ledger's record again after waiting this long for entries."""


@attrs.frozen
class Chunk:
    """Entries of one segment, in order."""

    segment: SegmentRecord
    entries: list[FetchedEntry]


@asynccontextmanager
async def open_walk(
    scan: PartitionScan,
    begin: Begin,
    end: PartitionEnd | None,
    *,
    deliver: Callable[[Chunk], bool] = lambda _chunk: False,
) -> AsyncIterator["PartitionWalk"]:
    """Open a walk from `begin` up to `end`, or for ever; no task outlives the block.

    deliver(chunk): take the next entries while a call of `next_chunk` waits at the tail, and go
    on waiting; False to get them from that call.
    """
    async with open_background() as nursery:
        walk = PartitionWalk(scan, begin, end, nursery, deliver)
        try:
            yield walk
        finally:
            walk.close()


class PartitionWalk:
    """A walk, positioned before its next entry. `open_walk` opens it.

    Invariants: all entries of the ledger up to `_readable` are acknowledged; `_stream`, if set,
    is positioned at the walk's entry, according to the record in `_ledger`.
    """

    def __init__(
        self,
        scan: PartitionScan,
        begin: Begin,
        end: PartitionEnd | None,
        nursery: trio.Nursery,
        deliver: Callable[[Chunk], bool],
    ) -> None:
        self._scan = scan
        self._nursery = nursery
        self._config = scan.config
        self._end = end
        self._segment = max(1, begin.row_number)  # By its number in the list.
        self._entry = begin.entry
        self._sequence: int | None = None
        self._least_sequence = begin.sequence  # The range begins here.
        self._least_epoch = begin.home_epoch  # And is a position of this home epoch, if known.
        self._dlsn = begin.dlsn  # Until an entry was read, or the walk went to a fork.
        self._gone: deque[TrimmedRun] = deque()  # To be returned before all else.
        self._ledger: LedgerRecord | None = None
        self._watch: LedgerWatch | None = None  # Only for a ledger that may change.
        self._readable = NO_ENTRY  # By the ledger's own numbers.
        self._stream: LedgerStream | None = None
        self._is_sealed = False  # And read to its end.
        self._home_epoch: int | None = None  # Of the last entry.
        self._deliver = deliver
        self._tail: LedgerTail | None = None  # Of the watched ledger.
        self._followed: SegmentRecord | None = None  # The segment of the tail.
        self._awake = trio.Event()  # Set when the walk has to do something at the tail.
        self._undelivered: Chunk | None = None
        self._failure: DamagedBytesError | None = None

    def __repr__(self) -> str:
        return f"PartitionWalk({self._scan.name}, at entry {self._entry} of {self._segment})"

    def close(self) -> None:
        """Stop reading."""
        self._close_stream()
        self._leave_tail()
        self._watch = None  # It calls this walk, so the two would be a cycle.

    def rest(self) -> None:
        """Ask for nothing ahead until the next chunk is wanted: answers take memory."""
        self._close_stream()

    async def next_chunk(self) -> Chunk | TrimmedRun | None:
        """The next entries, in order; None at the end.

        A read that follows ends only when the stream is sealed.
        """
        found: Chunk | TrimmedRun | None = None
        while found is None and (self._gone or not self._is_at_end()):
            if self._gone:
                return self._gone.popleft()
            try:
                found = await self._step()
            except NoSuchLedgerError:
                await self._check_trimmed()
        return found

    async def _step(self) -> Chunk | TrimmedRun | None:
        """Take one step; return entries or a gap if it led to some."""
        segment = await self._scan.segment(self._segment)
        if segment is None:
            return await self._find_segment()
        numbering = segment.numbering
        if numbering.is_in_earlier(self._entry) or await self._begins_elsewhere(segment):
            return await self._go_to_begin_of(segment)
        diverged = await self._leave_dead_branch(segment)
        if diverged is not None:
            return diverged
        ledger = await self._ledger_of(segment)
        entry = numbering.in_ledger(self._entry)
        if entry > self._readable:
            self._readable = self._scan.known_end(segment, ledger, self._end)
        if entry <= self._readable:
            return self._checked(segment, await self._fetch(entry))
        if self._is_over(segment, ledger):
            self._segment, self._entry = self._segment + 1, SEGMENT_BEGIN
            return None
        return await self._follow(segment, ledger, entry)

    async def _begins_elsewhere(self, row: SegmentRecord) -> bool:
        """Whether a mirror's row is the next, but begins elsewhere than the one before ended.

        Its home evicted what was between, or the mirror was begun again. It may be a home now.
        """
        has_rows = self._scan.has_rows or row.row is not None
        if not has_rows or self._entry != row.numbering.first:
            return False
        if self._sequence is not None:
            return self._sequence != row.first_sequence
        if self._least_sequence >= row.first_sequence:
            return False
        gap = (await self._scan.trim_record()).gap  # The walk begins at this row.
        return gap is not None and gap.end == row.first_sequence

    def _is_at_end(self) -> bool:
        end = self._end
        if self._is_sealed:
            return True
        return end is not None and (self._segment, self._entry) >= (end.row_number, end.entry)

    def _is_over(self, segment: SegmentRecord, ledger: LedgerRecord) -> bool:
        """Whether the segment has no more entries."""
        is_closed = segment.is_completed or ledger.state is LedgerState.CLOSED
        return self._end is not None or is_closed

    async def _ledger_of(self, segment: SegmentRecord) -> LedgerRecord:
        """The record of the segment's ledger."""
        if self._ledger is None or self._ledger.ledger != segment.ledger:
            self._close_stream()
            is_final = segment.is_completed or self._end is not None
            # A watch on a final record would wait for ever, one per segment.
            changed = None if is_final else trio.Event()
            self._ledger = (await self._scan.ledger_of(segment, changed=changed)).record
            self._watch_ledger(segment, changed)
            self._readable = EntryId(segment.numbering.in_ledger(self._entry) - 1)
        end = self._end
        has_successor = end is not None and segment.row_number < end.row_number
        if has_successor and self._ledger.state is not LedgerState.CLOSED:
            self._ledger = await self._scan.closed_ledger_of(segment)
        return self._ledger

    # Acknowledged entries.

    async def _fetch(self, first: EntryId) -> list[FetchedEntry]:
        """The ledger's entries from `first` up to `_readable`, at least one."""
        with trio.move_on_after(self._config.stall_timeout_s):
            while True:
                stream = self._open_stream(first)
                with trio.move_on_after(_MOVED_LOOK_S):
                    entries = await stream.read()
                    self._ledger = stream.record
                    return entries
                await self._look_where_it_is()
        assert self._ledger is not None
        raise self._scan.unavailable(self._ledger, first)

    def _open_stream(self, first: EntryId) -> LedgerStream:
        assert self._ledger is not None
        stream = self._stream
        if stream is None or (stream.entry_next, stream.last) != (first, self._readable):
            self._close_stream()
            stream = self._stream = LedgerStream(
                self._scan.reader, self._ledger, first, self._readable
            )
        return stream

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _look_where_it_is(self) -> None:
        """Switch to the ledger's current members, if metadata answers."""
        assert self._ledger is not None
        latest = await self._scan.where_now(self._ledger)
        if latest is not None and latest.fragments != self._ledger.fragments:
            self._close_stream()
            self._ledger = latest

    def _checked(self, segment: SegmentRecord, entries: list[FetchedEntry]) -> Chunk:
        for fetched in entries:
            self._check(segment, fetched)
        return Chunk(segment, entries)

    def _check(self, segment: SegmentRecord, fetched: FetchedEntry) -> None:
        """DamagedBytesError unless this is the next entry: a writer or node is broken."""
        header = fetched.decoded.header
        expected = self._sequence
        if expected is None and fetched.entry == 0:
            expected = segment.first_sequence
        found = (header.segment, header.entry)
        is_in_turn = expected is None or header.first_sequence == expected
        if found != (segment.segment, self._entry) or not is_in_turn:
            raise DamagedBytesError(
                f"{self._scan.name}: expected entry {self._entry} of segment {segment.segment},"
                f" sequence {expected}; node {fetched.served_by.node_id} gave entry"
                f" {header.entry} of segment {header.segment}, sequence {header.first_sequence}"
            )
        self._entry = SegmentEntry(self._entry + 1)
        self._sequence = header.next_sequence
        self._home_epoch = header.home_epoch
        self._dlsn = None

    # The tail: after the last entry known to be acknowledged.

    async def _follow(
        self, segment: SegmentRecord, ledger: LedgerRecord, first: EntryId
    ) -> Chunk | None:
        """Wait at the tail for `first` and more, or for a change of the ledger.

        While it waits, entries go to the application without it (`on_entries`).
        """
        if self._hear_of_ledger():
            return None
        assert self._tail is not None
        if first <= self._tail.lac:
            self._readable = max(self._readable, self._tail.lac)
            kept = self._tail.kept_from(first)
            return self._checked(segment, kept) if kept else None
        self._followed, self._awake = segment, trio.Event()
        self._tail.wait_nowait(self, ledger, first)
        try:
            await self._awake.wait()
        finally:
            self._tail.discard(self)
        if self._failure is not None:
            raise self._failure
        chunk, self._undelivered = self._undelivered, None
        return chunk

    def on_entries(self, entries: list[FetchedEntry]) -> bool:
        """Deliver the entries; wake the walk if they cannot be delivered. See `TailReader`."""
        if self._awake.is_set():
            return False  # For another reason: the walk will ask for them.
        assert self._followed is not None
        try:
            chunk = self._checked(self._followed, entries)
        except DamagedBytesError as error:
            self._failure = error
        else:
            self._readable = entries[-1].entry
            if self._deliver(chunk):
                return True
            self._undelivered = chunk
        self._awake.set()
        return False

    def on_passed(self) -> None:
        """Wake the walk, to read from replicas. See `TailReader`."""
        self._awake.set()

    def _hear_of_ledger(self) -> bool:
        """Take the ledger's changed record, if there is one; return whether there was."""
        assert self._watch is not None
        found = self._watch.take_nowait()
        if found is None:
            return False
        self._ledger = found
        self._close_stream()
        return True

    def _watch_ledger(self, segment: SegmentRecord, changed: trio.Event | None) -> None:
        """Watch the current ledger if it may change; stop watching the one before."""
        if self._watch is not None:
            self._watch.asking.cancel(reason="the walk has gone on to another ledger")
            self._watch = None
        self._leave_tail()
        if changed is not None:
            self._tail = self._scan.tails.join(segment.ledger)
            self._watch = LedgerWatch(
                self._scan, segment, changed, on_news=lambda: self._awake.set()
            )
            self._nursery.start_soon(self._watch.run, name=f"watch of {segment.ledger}")

    def _leave_tail(self) -> None:
        if self._tail is not None:
            self._tail.leave()
            self._tail = None

    # Segments that are gone, or not listed yet.

    async def _check_trimmed(self) -> None:
        """Handle a ledger that is gone; the list must have lost its segment, too.

        NoSuchStreamError, NoSuchLedgerError.
        """
        self._close_stream()
        self._ledger = None
        await self._scan.check_stream()
        await self._scan.refresh()
        segment = await self._scan.segment(self._segment)
        if segment is not None:
            raise NoSuchLedgerError(
                f"ledger {segment.ledger} does not exist, but {self._scan.name} lists it as"
                f" segment {segment.segment}: metadata is damaged"
            )

    async def _find_segment(self) -> TrimmedRun | None:
        """Go to the walk's segment, or the next one; wait until it is listed.

        If the stream is sealed and has no further segment, the walk is at its end.
        NoSuchStreamError.
        """
        is_following = self._end is None
        while True:
            changed = trio.Event()
            try:
                await self._scan.segments.refresh(changed=changed)
                self._scan.pace.on_answered()
                number = await self._scan.segments.next_from(self._segment)
                if number is not None:
                    return await self._go_to(number)
                if is_following:
                    await self._scan.check_stream()
                    if await self._scan.is_sealed_before(self._segment):
                        self._is_sealed = True
                        return None
            except NoSuchStreamError as error:
                raise await self._scan.why_gone(error) from None
            except GeologError as error:
                is_over = isinstance(error, MirrorGoneError) or not error.retriable
                if is_over or not is_following:
                    raise
                self._scan.pace.on_failed(now_s=trio.current_time())
                await self._scan.wait_to_ask()
                continue
            if not is_following:
                await self._scan.check_log()
                if await self._ends_without_rows() or await self._ends_at_fork():
                    return self._gone.popleft() if self._gone else None
                if self._scan.has_rows:  # The end of one that lost rows is never found again.
                    raise ConflictError(
                        f"{self._scan.name} was begun again while it was read, or has lost its"
                        f" last rows: it has nothing from row {self._segment} on. Open the"
                        " reader again; if that finds no end, the rows are lost"
                    )
                raise DataLostError(
                    f"segment {self._segment} of {self._scan.name} existed when the read began,"
                    " and is no longer listed"
                )
            await changed.wait()

    async def _ends_without_rows(self) -> bool:
        """Go to the end of a mirror that was begun again, and is empty; tell what is gone."""
        end = self._end
        if end is None:
            return False
        record = await self._scan.trim_record()
        due = self._least_sequence if self._sequence is None else self._sequence
        is_evicted = record.gap is not None and record.first_sequence > due
        if not is_evicted and not end.is_emptied:
            return False
        self._segment, self._entry = end.row_number, end.entry
        if record.first_sequence > due:
            self._gone.extend(runs_gone(record, due, record.first_sequence))
        return True

    async def _ends_at_fork(self) -> bool:
        """Go to the end of a log that was cut while it was read; tell what was left behind."""
        end = self._end
        if end is None:
            return False
        place = end.segment, SegmentEntry(end.entry - 1)
        fork = fork_before_place(await self._scan.forks(), *place)
        due = self._least_sequence if self._sequence is None else self._sequence
        if fork is None or due < fork.sequence:
            return False
        self._segment, self._entry = end.row_number, end.entry
        if due > fork.sequence:
            self._gone.append(TrimmedRun(fork.sequence, due, epoch=fork.home_epoch))
        return True

    async def _go_to(self, number: int) -> TrimmedRun | None:
        """Go to a listed segment."""
        if number == self._segment:
            return None
        segment = await self._scan.segment(number)
        if segment is None:
            return None  # Trimmed meanwhile: read the list again.
        return await self._go_to_begin_of(segment)

    async def _leave_dead_branch(self, segment: SegmentRecord) -> TrimmedRun | None:
        """If a later home begins before the place in the log, go on there; say what was left.

        segment: the next one, which is of the later home if so.
        """
        if self._dlsn is not None:
            return await self._leave_dead_place(self._dlsn, segment)
        epoch, due = self._place_in_lineage()
        if epoch is None or due is None or segment.home_epoch <= epoch:
            return None
        fork = branch_point(await self._forks_before(segment), epoch)
        if fork is None or due <= fork.sequence:
            return None
        return await self._go_to_fork(fork, due)

    async def _leave_dead_place(self, dlsn: DLSN, segment: SegmentRecord) -> TrimmedRun | None:
        """The same for a walk that begins at a DLSN: newer settings tell it before."""
        if segment.home_epoch <= self._scan.home_epoch:
            return None
        begun = await self._forks_before(segment)
        fork = fork_before_place(begun, dlsn.segment, SegmentEntry(dlsn.entry))
        return None if fork is None else await self._go_to_fork(fork, fork.sequence)

    async def _forks_before(self, segment: SegmentRecord) -> list[Fork]:
        """The forks up to the segment's home.

        Later homes have not begun in this log: it may be a branch that was kept.
        """
        forks = await self._scan.forks()
        return [one for one in forks if one.home_epoch <= segment.home_epoch]

    async def _go_to_fork(self, fork: Fork, due: int) -> TrimmedRun:
        """Go on where a later home begins; say what was left."""
        self._close_stream()
        begin = await PlaceSearch(self._scan).at_sequence(fork.sequence)
        self._segment, self._entry = begin.row_number, begin.entry
        self._sequence, self._home_epoch, self._ledger = None, None, None
        self._dlsn = None
        self._least_sequence, self._least_epoch = fork.sequence, fork.home_epoch
        return TrimmedRun(fork.sequence, due, epoch=fork.home_epoch)

    def _place_in_lineage(self) -> tuple[int | None, int | None]:
        """The home epoch and sequence up to which the application has the log.

        The range may begin beyond the entries that a mirror has, at a position that another
        region gave: until they reach it, the place is that position.
        """
        is_ahead = self._sequence is None or self._sequence < self._least_sequence
        if self._least_epoch is not None and is_ahead:
            return self._least_epoch, self._least_sequence
        return self._home_epoch, self._sequence

    async def _go_to_begin_of(self, segment: SegmentRecord) -> TrimmedRun | None:
        """Go to the first entry of the segment's ledger; sequences in between are gone."""
        number = segment.row_number
        self._close_stream()
        diverged = await self._leave_dead_branch(segment)
        if diverged is not None:
            return diverged
        due = self._least_sequence if self._sequence is None else self._sequence
        if segment.first_sequence <= due:
            if self._sequence is not None and segment.first_sequence < self._sequence:
                raise ConflictError(
                    f"{self._scan.name} was begun again at sequence {segment.first_sequence},"
                    f" while sequence {self._sequence} was due: open the reader again"
                )
            self._segment, self._entry = number, segment.numbering.first
            return None
        record = await self._scan.trim_record()
        trim = record.first_sequence
        if trim < segment.first_sequence:
            await self._scan.check_stream()
            raise DataLostError(
                f"{self._scan.name}: sequences {max(due, trim)} to {segment.first_sequence - 1}"
                " were not trimmed, but no segment has them"
            )
        begin = await PlaceSearch(self._scan).at_trim(trim)
        self._segment, self._entry = max(number, begin.row_number), begin.entry
        self._sequence, self._ledger = None, None
        self._least_sequence, self._least_epoch = trim, None
        self._gone.extend(runs_gone(record, due, trim))
        return self._gone.popleft()
