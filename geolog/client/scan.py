"""Walking over a stream's entries, segment after segment, and finding the place to begin at.

Whatever a replica gives is checked against what must come next: the entry's own header says
segment, entry and first sequence, so a copy that belongs elsewhere is found.
"""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.client.bounds import (
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
    Earliest,
    LastRecords,
    Latest,
)
from geolog.client.record import RecordBatch
from geolog.client.stream_metadata import StreamMetadata
from geolog.client.tail import StreamEnd, TailFinder
from geolog.ledger.ledger_metadata import (
    LedgerMetadata,
    NoSuchLedgerError,
    VersionedLedger,
)
from geolog.ledger.ledger_reader import FetchedEntry, LedgerReader
from geolog.protocol.ids import DLSN, NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import HOME_EPOCH, SegmentRecord, StreamName
from geolog.wire.entry import EntryHeader
from topology.errors import (
    DamagedBytesError,
    DataLostError,
    GeologError,
    InvalidArgumentError,
    UnavailableError,
)

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ReaderConfig:
    """Bounds of a reader."""

    end_timeout_s: float = 30.0
    """How long finding the end may take; then the read fails rather than end short."""

    stall_timeout_s: float = 60.0
    """How long the next entries may stay unavailable; then the read fails."""

    ahead_chunks: int = 2
    """Chunks of entries that are read ahead of the application."""

    follow_poll_s: float = 0.02
    """How often a reader that follows asks for the LAC when nothing new is there."""

    follow_ask_all_s: float = 0.5
    """How often it asks all replicas, not the nearest alone, which may hear of nothing."""

    retry_delay_s: float = 0.2
    """Pause before metadata that did not answer is asked again."""


@attrs.frozen
class Begin:
    """Where reading begins, as far as it is known before entries are read."""

    segment: int = 1
    entry: int = 0
    sequence: int = 0
    time_us: int | None = None
    transaction_id: int | None = None
    slot: int = 0


@attrs.frozen
class Until:
    """Where reading ends: before the first record that reaches any of these."""

    sequence: int | None = None
    dlsn: DLSN | None = None
    time_us: int | None = None
    transaction_id: int | None = None

    def is_before(self, begin: Begin) -> bool:
        """Whether nothing at all is wanted."""
        return self.sequence is not None and begin.sequence >= self.sequence

    def is_past(self, header: EntryHeader) -> bool:
        """Whether nothing behind this entry is wanted."""
        return (
            (self.sequence is not None and header.next_sequence >= self.sequence)
            or (self.time_us is not None and header.append_time_us >= self.time_us)
            or (self.dlsn is not None and (header.segment, header.entry) >= self._place())
        )

    def _place(self) -> tuple[int, int]:
        assert self.dlsn is not None
        return self.dlsn.segment, self.dlsn.entry

    def end_row(self, batch: RecordBatch) -> int:
        """The first row of the batch that is not wanted."""
        end = batch.end_row
        if self.sequence is not None:
            end = min(end, self.sequence - batch.first_sequence)
        if self.time_us is not None and batch.timestamp_us >= self.time_us:
            end = 0
        if self.dlsn is not None and (batch.segment, batch.entry) >= self._place():
            is_there = (batch.segment, batch.entry) == self._place()
            end = min(end, self.dlsn.slot - batch.first_slot) if is_there else 0
        if self.transaction_id is not None:
            end = min(end, row_of_transaction(batch, self.transaction_id))
        return max(0, end)


@attrs.frozen
class Chunk:
    """Entries of one segment, in order."""

    segment: SegmentRecord
    entries: list[FetchedEntry]


@attrs.define
class Walk:
    """Where a reader stands: the next entry, and the sequence that it must begin with."""

    segment: int
    entry: EntryId
    sequence: int | None = None
    ledger: LedgerRecord | None = None
    ledger_changed: trio.Event = attrs.field(factory=trio.Event)
    """Set when the ledger's record is not as it was read any more."""
    readable: EntryId = NO_ENTRY
    """The last entry of the ledger that may be shown, as far as was asked."""
    asked_all_s: float = -math.inf
    """When all replicas were last asked how far that is."""

    @classmethod
    def beginning(cls, begin: Begin) -> "Walk":
        """A walk that stands where reading begins."""
        return cls(max(1, begin.segment), EntryId(begin.entry))

    @property
    def is_ledger_closed(self) -> bool:
        """Whether the ledger was CLOSED when it was read: `readable` is its end then."""
        return self.ledger is not None and self.ledger.state is LedgerState.CLOSED


class StreamScan:
    """Walks over the entries of a stream; the part of a reader that runs ahead."""

    def __init__(
        self,
        name: StreamName,
        *,
        streams: StreamMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        tail: TailFinder,
        config: ReaderConfig,
    ) -> None:
        self._name = name
        self._streams = streams
        self._ledgers = ledgers
        self._reader = reader
        self._tail = tail
        self._config = config
        self._segments: dict[int, SegmentRecord] = {}

    async def refresh(self) -> None:
        """Read the list of segments again."""
        listed = await self._streams.segments(self._name)
        self._segments = {one.record.segment: one.record for one in listed}

    async def end(self) -> StreamEnd:
        """The end of the stream now. UnavailableError when it cannot be found in time."""
        timeout_s = self._config.end_timeout_s
        return await self._insist(
            lambda: self._tail.end_of(self._name),
            timeout_s=timeout_s,
            late=f"the end of {self._name} could not be found within {timeout_s} s",
            why="too few replicas answer, or its last ledger is being recovered",
        )

    async def _insist(
        self, ask: Callable[[], Awaitable[T]], *, timeout_s: float, late: str, why: str
    ) -> T:
        """Ask again what is merely unavailable, until it is too late."""
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    return await ask()
                except GeologError as error:
                    if not error.retriable:
                        raise
                    why = str(error)
                await trio.sleep(self._config.retry_delay_s)
        raise UnavailableError(f"{late}: {why}")

    async def locate(self, start: Bound, end: StreamEnd | None) -> Begin:
        """Turn a bound into a place to begin at."""
        await self._insist(
            self.refresh,
            timeout_s=self._config.end_timeout_s,
            late=f"the segments of {self._name} could not be listed",
            why="metadata does not answer",
        )
        if end is None and isinstance(start, Latest | LastRecords):
            end = await self.end()
        match start:
            case Earliest():
                return Begin()
            case Latest():
                assert end is not None
                return Begin(end.segment, end.entry, end.sequence)
            case LastRecords(count):
                assert end is not None
                return await self._at_sequence(max(0, end.sequence - count))
            case AtSequence(sequence, home_epoch):
                self._check_home_epoch(home_epoch)
                return await self._at_sequence(sequence)
            case AtDlsn(dlsn):
                return Begin(dlsn.segment, dlsn.entry, slot=dlsn.slot)
            case AtTime(time_us):
                return await self._at_time(time_us)
            case AtTransaction(transaction_id):
                return Begin(transaction_id=transaction_id)

    async def until(self, stop: Bound | None, end: StreamEnd | None) -> Until:
        """Turn the bound at which to stop into what records are compared with."""
        limit = None if end is None else end.sequence
        match stop:
            case None:
                return Until(limit)
            case Earliest():
                return Until(0)
            case Latest():
                return Until((end or await self.end()).sequence)
            case LastRecords(count):
                return Until(max(0, (end or await self.end()).sequence - count))
            case AtSequence(sequence, home_epoch):
                self._check_home_epoch(home_epoch)
                return Until(sequence if limit is None else min(sequence, limit))
            case AtDlsn(dlsn):
                return Until(limit, dlsn=dlsn)
            case AtTime(time_us):
                return Until(limit, time_us=time_us)
            case AtTransaction(transaction_id):
                return Until(limit, transaction_id=transaction_id)

    def _check_home_epoch(self, home_epoch: int) -> None:
        """A position of an epoch that never was is somebody's mistake, not the start."""
        if home_epoch != HOME_EPOCH:
            raise InvalidArgumentError(
                f"{self._name} has no home epoch {home_epoch}: the one that it has is"
                f" {HOME_EPOCH}"
            )

    async def _at_sequence(self, sequence: int) -> Begin:
        segment = self._last_segment(lambda one: one.first_sequence <= sequence)
        if segment is None:
            return Begin(sequence=sequence)
        entry = await self._search(segment, lambda header: header.first_sequence <= sequence)
        return Begin(segment.segment, entry, sequence)

    async def _at_time(self, time_us: int) -> Begin:
        segment = self._last_segment(lambda one: one.append_time_us_before < time_us)
        if segment is None:
            return Begin(time_us=time_us)
        entry = await self._search(segment, lambda header: header.append_time_us < time_us)
        return Begin(segment.segment, entry, time_us=time_us)

    def _last_segment(self, holds: Callable[[SegmentRecord], bool]) -> SegmentRecord | None:
        return next(
            (one for _, one in sorted(self._segments.items(), reverse=True) if holds(one)), None
        )

    async def _search(
        self, segment: SegmentRecord, holds: Callable[[EntryHeader], bool]
    ) -> EntryId:
        """The last entry of which `holds` is true, if it is true of a prefix; else 0."""
        ledger = (await self._ledger(segment)).record
        low, high = 0, await self._readable_to(segment, ledger, NO_ENTRY) + 1
        while high - low > 1:
            middle = EntryId((low + high) // 2)
            (fetched, *_) = await self._fetch(ledger, middle, middle)
            if holds(fetched.decoded.header):
                low = middle
            else:
                high = middle
        return EntryId(low)

    async def _readable_to(
        self, segment: SegmentRecord, ledger: LedgerRecord, above: EntryId
    ) -> EntryId:
        """The last entry of the segment that may be shown now."""
        if segment.last_entry is not None:
            return segment.last_entry
        if ledger.state is LedgerState.CLOSED:
            assert ledger.last_entry is not None
            return ledger.last_entry
        return self._further(above, await self._reader.lac_nearby(ledger))

    def _further(self, above: EntryId, lac: EntryId | None) -> EntryId:
        return above if lac is None else max(above, lac)

    async def _fetch(
        self, ledger: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        with trio.move_on_after(self._config.stall_timeout_s):
            return await self._reader.read(ledger, first, last)
        raise UnavailableError(
            f"entry {first} of ledger {ledger.ledger} ({self._name}) is unavailable: none of"
            f" its replicas answered within {self._config.stall_timeout_s} s"
        )

    async def next_chunk(self, walk: Walk, end: StreamEnd | None) -> Chunk | None:
        """The next entries, in order; None at `end`, of which there is none when following."""
        while end is None or (walk.segment, walk.entry) < (end.segment, end.entry):
            segment = self._segments.get(walk.segment)
            if segment is None:
                await self._find_segment(walk, is_following=end is None)
                continue
            if walk.ledger is None or walk.ledger.ledger != segment.ledger:
                await self._read_ledger(walk, segment)
                walk.readable = EntryId(walk.entry - 1)
            ledger = walk.ledger
            assert ledger is not None
            if walk.entry > walk.readable:
                await self._look_further(walk, segment, ledger, end)
            if walk.entry <= walk.readable:
                entries = await self._fetch(ledger, walk.entry, walk.readable)
                for fetched in entries:
                    self._check(segment, fetched, walk)
                return Chunk(segment, entries)
            if end is not None or segment.is_completed or walk.is_ledger_closed:
                walk.segment, walk.entry = walk.segment + 1, EntryId(0)
            else:
                await trio.sleep(self._config.follow_poll_s)
                if walk.ledger_changed.is_set():
                    await self._read_ledger_again(walk, segment)
        return None

    async def _read_ledger(self, walk: Walk, segment: SegmentRecord) -> None:
        walk.ledger_changed = trio.Event()
        walk.ledger = (await self._ledger(segment, changed=walk.ledger_changed)).record

    async def _read_ledger_again(self, walk: Walk, segment: SegmentRecord) -> None:
        """Follow what becomes of the ledger; with metadata away, go on with what is known."""
        walk.ledger_changed = trio.Event()
        try:
            with trio.move_on_after(self._config.follow_ask_all_s):
                read = await self._ledgers.read(segment.ledger, changed=walk.ledger_changed)
                walk.ledger = read.record
                return
        except NoSuchLedgerError:
            await self._streams.read(self._name)  # NoSuchStreamError, if that is why.
            raise
        except GeologError as error:
            if not error.retriable:
                raise
        walk.ledger_changed.set()  # It is still not known.

    async def _ledger(
        self, segment: SegmentRecord, *, changed: trio.Event | None = None
    ) -> VersionedLedger:
        return await self._insist(
            lambda: self._ledgers.read(segment.ledger, changed=changed),
            timeout_s=self._config.stall_timeout_s,
            late=f"ledger {segment.ledger} of {self._name} could not be looked up",
            why="metadata does not answer",
        )

    async def _look_further(
        self, walk: Walk, segment: SegmentRecord, ledger: LedgerRecord, end: StreamEnd | None
    ) -> None:
        """Find how far the segment may be shown now."""
        if end is not None and end.segment == segment.segment:
            walk.readable = EntryId(end.entry - 1)
            return
        walk.readable = await self._readable_to(segment, ledger, walk.readable)
        now_s = trio.current_time()
        is_due = now_s - walk.asked_all_s >= self._config.follow_ask_all_s
        if walk.entry > walk.readable and not walk.is_ledger_closed and is_due:
            walk.asked_all_s = now_s
            lac = await self._reader.lac_anywhere(ledger)
            walk.readable = self._further(walk.readable, lac)

    async def _find_segment(self, walk: Walk, *, is_following: bool) -> None:
        """Go to the segment at which the walk stands, or the next one: wait until it is listed.

        NoSuchStreamError when the stream is gone.
        """
        while True:
            changed = trio.Event()
            try:
                await self._streams.owner(self._name, changed=changed)
                await self.refresh()
            except GeologError as error:
                if not (is_following and error.retriable):
                    raise
                await trio.sleep(self._config.retry_delay_s)
                continue
            number = min((one for one in self._segments if one >= walk.segment), default=None)
            if number is not None:
                if number > walk.segment:
                    walk.segment, walk.entry = number, EntryId(0)
                return
            if not is_following:
                raise DataLostError(
                    f"segment {walk.segment} of {self._name} was there when the read began, and"
                    " is not listed any more"
                )
            await changed.wait()

    def _check(self, segment: SegmentRecord, fetched: FetchedEntry, walk: Walk) -> None:
        """What came is what must come next; else some writer or node is broken, and we stop."""
        header = fetched.decoded.header
        expected = walk.sequence
        if expected is None and walk.entry == 0:
            expected = segment.first_sequence
        found = (header.segment, header.entry)
        is_in_turn = expected is None or header.first_sequence == expected
        if found != (segment.segment, walk.entry) or not is_in_turn:
            raise DamagedBytesError(
                f"{self._name}: entry {walk.entry} of segment {segment.segment}, sequence"
                f" {expected}, is asked for; node {fetched.served_by.node_id} gave entry"
                f" {header.entry} of segment {header.segment}, sequence {header.first_sequence}"
            )
        walk.entry = EntryId(walk.entry + 1)
        walk.sequence = header.next_sequence


def row_of_transaction(batch: RecordBatch, transaction_id: int) -> int:
    """The first row whose transaction id is that or higher; the end if there is none."""
    for row in range(batch.end_row):
        found = batch.batch.transaction_id(row)
        if found is not None and found >= transaction_id:
            return row
    return batch.end_row
