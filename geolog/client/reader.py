"""Reading a stream in order: segment after segment, from the nearest replica, without a gap.

One task reads ahead into a bounded channel. Whatever comes is checked against what must come
next: the entry's own header says segment, entry and first sequence, so a copy that belongs
elsewhere is found. A bounded read ends at the end that was asked for when it was opened, or
fails.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

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
from geolog.client.record import Record, RecordBatch
from geolog.client.stream_metadata import StreamMetadata
from geolog.client.tail import StreamEnd, TailFinder
from geolog.ledger.background import open_background
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.ledger_reader import FetchedEntry, LedgerReader
from geolog.protocol.ids import DLSN, NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import SegmentRecord, StreamName
from geolog.wire.entry import EntryHeader, EntryKind
from topology.errors import DamagedBytesError, GeologError, UnavailableError


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


@attrs.frozen
class _From:
    """Where reading begins, as far as it is known before entries are read."""

    segment: int = 1
    entry: int = 0
    sequence: int = 0
    time_us: int | None = None
    transaction_id: int | None = None
    slot: int = 0


@attrs.frozen
class _Until:
    """Where reading ends: before the first record that reaches any of these."""

    sequence: int | None = None
    dlsn: DLSN | None = None
    time_us: int | None = None
    transaction_id: int | None = None

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
            end = min(end, _row_of_transaction(batch, self.transaction_id))
        return max(0, end)


@attrs.frozen
class Chunk:
    """Entries of one segment, in order."""

    segment: SegmentRecord
    entries: list[FetchedEntry]


Received = Chunk | GeologError


@attrs.define
class _Walk:
    """Where the reader stands: the next entry, and the sequence that it must begin with."""

    segment: int
    entry: EntryId
    sequence: int | None


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
        with trio.move_on_after(self._config.end_timeout_s):
            return await self._tail.end_of(self._name)
        raise UnavailableError(
            f"the end of {self._name} could not be found within {self._config.end_timeout_s} s:"
            " too few replicas answer, or its last ledger is being recovered"
        )

    async def locate(self, start: Bound, end: StreamEnd | None) -> _From:
        """Turn a bound into a place to begin at."""
        await self.refresh()
        if end is None and isinstance(start, Latest | LastRecords):
            end = await self.end()
        match start:
            case Earliest():
                return _From()
            case Latest():
                assert end is not None
                return _From(end.segment, end.entry, end.sequence)
            case LastRecords(count):
                assert end is not None
                return await self._at_sequence(max(0, end.sequence - count))
            case AtSequence(sequence, _):
                return await self._at_sequence(sequence)
            case AtDlsn(dlsn):
                return _From(dlsn.segment, dlsn.entry, slot=dlsn.slot)
            case AtTime(time_us):
                return await self._at_time(time_us)
            case AtTransaction(transaction_id):
                return _From(transaction_id=transaction_id)

    async def until(self, stop: Bound | None, end: StreamEnd | None) -> _Until:
        """Turn the bound at which to stop into what records are compared with."""
        limit = None if end is None else end.sequence
        match stop:
            case None:
                return _Until(limit)
            case Earliest():
                return _Until(0)
            case Latest():
                return _Until((end or await self.end()).sequence)
            case LastRecords(count):
                return _Until(max(0, (end or await self.end()).sequence - count))
            case AtSequence(sequence, _):
                return _Until(sequence if limit is None else min(sequence, limit))
            case AtDlsn(dlsn):
                return _Until(limit, dlsn=dlsn)
            case AtTime(time_us):
                return _Until(limit, time_us=time_us)
            case AtTransaction(transaction_id):
                return _Until(limit, transaction_id=transaction_id)

    async def _at_sequence(self, sequence: int) -> _From:
        segment = self._last_segment(lambda one: one.first_sequence <= sequence)
        if segment is None:
            return _From(sequence=sequence)
        entry = await self._search(segment, lambda header: header.first_sequence <= sequence)
        return _From(segment.segment, entry, sequence)

    async def _at_time(self, time_us: int) -> _From:
        segment = self._last_segment(lambda one: one.append_time_us_before < time_us)
        if segment is None:
            return _From(time_us=time_us)
        entry = await self._search(segment, lambda header: header.append_time_us < time_us)
        return _From(segment.segment, entry, time_us=time_us)

    def _last_segment(self, holds: Callable[[SegmentRecord], bool]) -> SegmentRecord | None:
        return next(
            (one for _, one in sorted(self._segments.items(), reverse=True) if holds(one)), None
        )

    async def _search(
        self, segment: SegmentRecord, holds: Callable[[EntryHeader], bool]
    ) -> EntryId:
        """The last entry of which `holds` is true, if it is true of a prefix; else 0."""
        ledger = (await self._ledgers.read(segment.ledger)).record
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
        return await self._tail.lac_of(ledger, above)

    async def _fetch(
        self, ledger: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        with trio.move_on_after(self._config.stall_timeout_s):
            return await self._reader.read(ledger, first, last)
        raise UnavailableError(
            f"entry {first} of ledger {ledger.ledger} ({self._name}) is unavailable: none of"
            f" its replicas answered within {self._config.stall_timeout_s} s"
        )

    async def chunks(self, start: _From, end: StreamEnd | None) -> AsyncGenerator[Chunk, None]:
        """Entries in order, a chunk at a time, up to `end`; for ever when that is None."""
        walk = _Walk(max(1, start.segment), EntryId(start.entry), None)
        while end is None or (walk.segment, walk.entry) < (end.segment, end.entry):
            segment = self._segments.get(walk.segment)
            if segment is None:
                if not await self._wait_for_segment(walk, is_following=end is None):
                    return
                continue
            ledger = (await self._ledgers.read(segment.ledger)).record
            async for chunk in self._segment_chunks(segment, ledger, walk, end):
                yield Chunk(segment, chunk)
            walk.segment, walk.entry = walk.segment + 1, EntryId(0)

    async def _wait_for_segment(self, walk: _Walk, *, is_following: bool) -> bool:
        """Whether the segment at which the walk stands, or a later one, is listed."""
        while True:
            await self.refresh()
            later = [number for number in self._segments if number >= walk.segment]
            if later:
                walk.segment = min(later)
                return True
            if not is_following:
                return False
            await trio.sleep(self._config.follow_poll_s)

    async def _segment_chunks(
        self, segment: SegmentRecord, ledger: LedgerRecord, walk: _Walk, end: StreamEnd | None
    ) -> AsyncIterator[list[FetchedEntry]]:
        readable = EntryId(walk.entry - 1)
        while True:
            if walk.entry > readable:
                if end is not None and end.segment == segment.segment:
                    readable = EntryId(end.entry - 1)
                else:
                    readable = await self._readable_to(segment, ledger, readable)
            if walk.entry > readable:
                if (
                    end is not None
                    or ledger.state is LedgerState.CLOSED
                    or segment.is_completed
                ):
                    return
                await trio.sleep(self._config.follow_poll_s)
                ledger = (await self._ledgers.read(segment.ledger)).record
                continue
            chunk = await self._fetch(ledger, walk.entry, readable)
            for fetched in chunk:
                self._check(segment, fetched, walk)
            yield chunk

    def _check(self, segment: SegmentRecord, fetched: FetchedEntry, walk: _Walk) -> None:
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


class Reader:
    """Records of one stream in order; `Log.open_reader` makes it."""

    def __init__(
        self,
        name: StreamName,
        start: _From,
        until: _Until,
        received: trio.MemoryReceiveChannel[Received],
    ) -> None:
        self._name = name
        self._start = start
        self._until = until
        self._received = received
        self._sequence_next: int | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"Reader({self._name}, next sequence {self._sequence_next})"

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records()

    async def _records(self) -> AsyncIterator[Record]:
        async for batch in self.batches():
            for record in batch:
                yield record

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """The native unit: runs of records with consecutive sequences."""
        async for received in self._received:
            if isinstance(received, GeologError):
                raise received
            for fetched in received.entries:
                for batch in self._batches_of(received.segment, fetched):
                    self._sequence_next = batch.end_sequence
                    yield batch
                if self._is_over:
                    return

    def _batches_of(self, segment: SegmentRecord, fetched: FetchedEntry) -> list[RecordBatch]:
        header = fetched.decoded.header
        if header.kind is not EntryKind.DATA:
            return []
        found = []
        slot = 0
        for index, line in enumerate(header.lines):
            batch = RecordBatch(
                stream=str(self._name),
                partition=0,
                epoch=header.home_epoch,
                segment=segment.segment,
                entry=header.entry,
                first_slot=slot,
                first_sequence=header.first_sequence + slot,
                timestamp_us=header.append_time_us,
                served_region=fetched.served_by.location.region,
                batch=fetched.decoded.open(index),
                end_row=line.record_count,
            )
            slot += line.record_count
            cut = self._cut(batch)
            if len(cut):
                found.append(cut)
        return found

    def _cut(self, batch: RecordBatch) -> RecordBatch:
        """Without the rows before the start and behind the end."""
        start, first = self._start, max(0, self._start.sequence - batch.first_sequence)
        if (batch.segment, batch.entry) == (start.segment, start.entry):
            first = max(first, start.slot - batch.first_slot)
        if start.time_us is not None and batch.timestamp_us < start.time_us:
            first = batch.end_row
        if start.transaction_id is not None and self._sequence_next is None:
            first = max(first, _row_of_transaction(batch, start.transaction_id))
        end = self._until.end_row(batch)
        self._is_over = self._is_over or end < batch.end_row
        return attrs.evolve(batch, first_row=min(first, end), end_row=end)


def _row_of_transaction(batch: RecordBatch, transaction_id: int) -> int:
    for row in range(batch.end_row):
        found = batch.batch.transaction_id(row)
        if found is not None and found >= transaction_id:
            return row
    return batch.end_row


@asynccontextmanager
async def open_stream_reader(
    scan: StreamScan,
    name: StreamName,
    *,
    start: Bound,
    stop: Bound | None,
    is_following: bool,
    config: ReaderConfig,
) -> AsyncIterator[Reader]:
    """Read from `start` up to, and without, `stop`; by default up to the end of this moment.

    With `is_following` it goes on behind that end, until `stop` or for ever.
    """
    end = None if is_following else await scan.end()
    begin = await scan.locate(start, end)
    until = await scan.until(stop, end)
    send, receive = trio.open_memory_channel[Received](config.ahead_chunks)

    async def read_ahead() -> None:
        async with send:
            try:
                async with aclosing(scan.chunks(begin, end)) as chunks:
                    async for chunk in chunks:
                        await send.send(chunk)
                        if until.is_past(chunk.entries[-1].decoded.header):
                            return
            except GeologError as error:
                await send.send(error)

    async with open_background() as nursery:
        nursery.start_soon(read_ahead, name=f"read ahead of {name}")
        yield Reader(name, begin, until, receive)
