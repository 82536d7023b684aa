"""Walking over a partition's entries, segment after segment, up to an end or for ever.

Whatever a replica gives is checked against what must come next: the entry's own header says
segment, entry and first sequence, so a copy that belongs elsewhere is found.

A ledger's record may change while it is read: its writer gives a place to another node, a
copier moves what is closed. A reader that goes by an old record may ask nodes that have
nothing. So the record is read again before entries count as lost (`LedgerReader`), and now and
then while they do not come. `LedgerWatch` tells what becomes of an open ledger.

What is trimmed while it is read may be gone at any moment: then the walk goes on where the
partition begins, and says what it leaves out.

Rules: PROTOCOL R1, R7, R10 and R11.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.reading.ledger_watch import LedgerWatch
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.read_range import Begin
from geolog.client.reading.scan import PartitionScan
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import FetchedEntry, Followed
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.partition.tail import PartitionEnd
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import SegmentRecord
from topology.errors import (
    DamagedBytesError,
    DataLostError,
    GeologError,
)

_MOVED_LOOK_S = 3.0
"""How long entries may not come before the ledger's record is read again."""


@attrs.frozen
class Chunk:
    """Entries of one segment, in order."""

    segment: SegmentRecord
    entries: list[FetchedEntry]


@attrs.frozen
class TrimmedRun:
    """Sequences that were trimmed, from the one that was due on."""

    from_sequence: int
    to_sequence: int


@asynccontextmanager
async def open_walk(
    scan: PartitionScan, begin: Begin, end: PartitionEnd | None
) -> AsyncIterator["PartitionWalk"]:
    """A walk from `begin` on, up to the end or for ever; nothing is under way after it."""
    async with open_background() as nursery:
        walk = PartitionWalk(scan, begin, end, nursery)
        try:
            yield walk
        finally:
            walk.close()


class PartitionWalk:
    """Stands before the next entry; `open_walk` makes it.

    Invariants: all entries of the ledger up to `_readable` are acknowledged; `_stream`, if
    there is one, stands at `_entry` of that ledger, by the record that is in `_ledger`.
    """

    def __init__(
        self,
        scan: PartitionScan,
        begin: Begin,
        end: PartitionEnd | None,
        nursery: trio.Nursery,
    ) -> None:
        self._scan = scan
        self._nursery = nursery
        self._config = scan.config
        self._end = end
        self._segment = max(1, begin.segment)
        self._entry = EntryId(begin.entry)
        self._sequence: int | None = None
        self._least_sequence = begin.sequence  # What lies before is not wanted.
        self._ledger: LedgerRecord | None = None
        self._watch: LedgerWatch | None = None  # Of a ledger that may change.
        self._readable = EntryId(begin.entry - 1)
        self._stream: LedgerStream | None = None
        self._is_sealed = False  # And all of it was given.
        self._asked_all_s = -math.inf

    def __repr__(self) -> str:
        return f"PartitionWalk({self._scan.name}, at entry {self._entry} of {self._segment})"

    def close(self) -> None:
        """Wait for nothing more."""
        self._close_stream()

    async def next_chunk(self) -> Chunk | TrimmedRun | None:
        """The next entries, in order; None at the end.

        Who follows a stream that is not sealed comes to no end.
        """
        found: Chunk | TrimmedRun | None = None
        while found is None and not self._is_at_end():
            try:
                found = await self._step()
            except NoSuchLedgerError:
                await self._check_trimmed()
        return found

    async def _step(self) -> Chunk | TrimmedRun | None:
        """Entries, if it comes to some; else one step on towards them."""
        segment = await self._scan.segment(self._segment)
        if segment is None:
            return await self._find_segment()
        ledger = await self._ledger_of(segment)
        if self._entry > self._readable:
            self._readable = self._scan.known_end(segment, ledger, self._end)
        if self._entry <= self._readable:
            return self._checked(segment, await self._fetch())
        if self._is_over(segment, ledger):
            self._segment, self._entry = self._segment + 1, EntryId(0)
            return None
        entries = await self._follow(ledger)
        return self._checked(segment, entries) if entries else None

    def _is_at_end(self) -> bool:
        end = self._end
        if self._is_sealed:
            return True
        return end is not None and (self._segment, self._entry) >= (end.segment, end.entry)

    def _is_over(self, segment: SegmentRecord, ledger: LedgerRecord) -> bool:
        """Whether nothing more comes in this segment."""
        is_closed = segment.is_completed or ledger.state is LedgerState.CLOSED
        return self._end is not None or is_closed

    async def _ledger_of(self, segment: SegmentRecord) -> LedgerRecord:
        """The segment's ledger, as it was read."""
        if self._ledger is None or self._ledger.ledger != segment.ledger:
            self._close_stream()
            is_final = segment.is_completed or self._end is not None
            # A watch on what never changes would wait for ever, one for each segment.
            changed = None if is_final else trio.Event()
            self._ledger = (await self._scan.ledger_of(segment, changed=changed)).record
            self._watch_ledger(segment, changed)
            self._readable = EntryId(self._entry - 1)
        has_successor = self._end is not None and segment.segment < self._end.segment
        if has_successor and self._ledger.state is not LedgerState.CLOSED:
            self._ledger = await self._scan.closed_ledger_of(segment)
        return self._ledger

    # Entries that are acknowledged.

    async def _fetch(self) -> list[FetchedEntry]:
        """The next entries up to `_readable`, at least one."""
        with trio.move_on_after(self._config.stall_timeout_s):
            while True:
                stream = self._open_stream()
                with trio.move_on_after(_MOVED_LOOK_S):
                    entries = await stream.read()
                    self._ledger = stream.record
                    return entries
                await self._look_where_it_is()
        assert self._ledger is not None
        raise self._scan.unavailable(self._ledger, self._entry)

    def _open_stream(self) -> LedgerStream:
        assert self._ledger is not None
        stream = self._stream
        if stream is None or (stream.entry_next, stream.last) != (self._entry, self._readable):
            self._close_stream()
            stream = self._stream = LedgerStream(
                self._scan.reader, self._ledger, self._entry, self._readable
            )
        return stream

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _look_where_it_is(self) -> None:
        """Seek the ledger's entries where they are now, if metadata says where that is."""
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
        """What came is what must come next; else some writer or node is broken, and we stop."""
        header = fetched.decoded.header
        expected = self._sequence
        if expected is None and self._entry == 0:
            expected = segment.first_sequence
        found = (header.segment, header.entry)
        is_in_turn = expected is None or header.first_sequence == expected
        if found != (segment.segment, self._entry) or not is_in_turn:
            raise DamagedBytesError(
                f"{self._scan.name}: entry {self._entry} of segment {segment.segment}, sequence"
                f" {expected}, is asked for; node {fetched.served_by.node_id} gave entry"
                f" {header.entry} of segment {header.segment}, sequence {header.first_sequence}"
            )
        self._entry = EntryId(self._entry + 1)
        self._sequence = header.next_sequence

    # Behind the last that is known to be acknowledged.

    async def _follow(self, ledger: LedgerRecord) -> list[FetchedEntry]:
        """Wait at the tail until there is more, or something else has become of the ledger."""
        followed = await self._wait_at_tail(ledger)
        if followed is not None:
            self._readable = EntryId(max(self._readable, followed.lac))
            if followed.entries:
                return followed.entries
        if self._hear_of_ledger():
            return []
        now_s = trio.current_time()
        if self._entry > self._readable:
            if now_s - self._asked_all_s >= self._config.follow_ask_all_s:
                self._asked_all_s = now_s
                lac = await self._scan.reader.lac_anywhere(ledger)
                self._readable = max(self._readable, lac or self._readable)
            elif followed is None or followed.is_fenced:
                await trio.sleep(self._config.follow_poll_s)  # It answers at once.
        return []

    async def _wait_at_tail(self, ledger: LedgerRecord) -> Followed | None:
        """What the nearest member says; None if it failed, or the ledger's record changed."""
        assert self._watch is not None
        news = self._watch.news
        if news.is_set():
            return None
        followed: Followed | None = None
        async with trio.open_nursery() as nursery:

            async def end_with_news() -> None:
                await news.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_with_news)
            followed = await self._scan.reader.follow(
                ledger, self._entry, wait_s=self._config.follow_ask_all_s
            )
            nursery.cancel_scope.cancel()
        return followed

    def _hear_of_ledger(self) -> bool:
        """Go by what the ledger has become, if anything is new of it."""
        assert self._watch is not None
        found = self._watch.take_nowait()
        if found is None:
            return False
        self._ledger = found
        self._close_stream()
        return True

    def _watch_ledger(self, segment: SegmentRecord, changed: trio.Event | None) -> None:
        """Look after the ledger that is read now, if it may change, and no longer the last."""
        if self._watch is not None:
            self._watch.asking.cancel(reason="another ledger is read")
            self._watch = None
        if changed is not None:
            self._watch = LedgerWatch(self._scan, segment, changed)
            self._nursery.start_soon(self._watch.run, name=f"watch of {segment.ledger}")

    # Segments that are gone, or not there yet.

    async def _check_trimmed(self) -> None:
        """After the ledger was found to be gone: its segment must be gone from the list too.

        NoSuchStreamError, or NoSuchLedgerError.
        """
        self._close_stream()
        self._ledger = None
        await self._scan.check_stream()
        await self._scan.segments.refresh()
        segment = await self._scan.segment(self._segment)
        if segment is not None:
            raise NoSuchLedgerError(
                f"there is no ledger {segment.ledger}, but {self._scan.name} lists it as"
                f" segment {segment.segment}: metadata is damaged"
            )

    async def _find_segment(self) -> TrimmedRun | None:
        """Go to the segment at which the walk stands, or the next one: wait until it is listed.

        When there is none and will be none, the stream being sealed, that is the end.
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
            except GeologError as error:
                if not (is_following and error.retriable):
                    raise
                self._scan.pace.on_failed(now_s=trio.current_time())
                await self._scan.wait_to_ask()
                continue
            if not is_following:
                await self._scan.check_stream()
                raise DataLostError(
                    f"segment {self._segment} of {self._scan.name} was there when the read"
                    " began, and is not listed any more"
                )
            await changed.wait()

    async def _go_to(self, number: int) -> TrimmedRun | None:
        """Stand at the first entry of a listed segment; what lies between was trimmed."""
        if number == self._segment:
            return None
        segment = await self._scan.segment(number)
        if segment is None:
            return None  # It went as well: the list is read again.
        due = self._least_sequence if self._sequence is None else self._sequence
        self._close_stream()
        if segment.first_sequence <= due:
            self._segment, self._entry = number, EntryId(0)
            return None
        trim = await self._scan.trim()
        if trim < segment.first_sequence:
            await self._scan.check_stream()
            raise DataLostError(
                f"{self._scan.name}: sequence {due} is due, and the next that is listed is"
                f" {segment.first_sequence}, but {trim} is the first that was not trimmed"
            )
        begin = await PlaceSearch(self._scan).at_trim(trim)
        self._segment, self._entry = max(number, begin.segment), EntryId(begin.entry)
        self._sequence, self._least_sequence = None, trim
        self._ledger = None
        return TrimmedRun(due, trim)
