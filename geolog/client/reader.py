"""Reading a stream in order: one task reads ahead into a bounded channel, the caller takes.

A bounded read ends at the end that was asked for when it was opened, or fails.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.bounds import Bound
from geolog.client.record import Record, RecordBatch
from geolog.client.scan import (
    Begin,
    ReaderConfig,
    StreamScan,
    Until,
    row_of_transaction,
)
from geolog.client.walk import Chunk, StreamWalk
from geolog.ledger.ledger_reader import FetchedEntry
from geolog.protocol.stream_state import SegmentRecord, StreamName
from geolog.wire.entry import EntryKind
from topology.errors import GeologError

Received = Chunk | GeologError


class Reader:
    """Records of one stream in order; `Log.open_reader` makes it."""

    def __init__(
        self,
        name: StreamName,
        start: Begin,
        until: Until,
        received: trio.MemoryReceiveChannel[Received],
    ) -> None:
        self._name = name
        self._start = start
        self._until = until
        self._received = received
        self._sequence_next: int | None = None
        self._is_begun = False
        self._is_over = False
        self._failure: GeologError | None = None
        self._batches: deque[RecordBatch] = deque()
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return f"Reader({self._name}, next sequence {self._sequence_next})"

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Record:
        record = next(self._records, None)
        while record is None:
            self._records = iter(await self._next_batch())
            record = next(self._records, None)
        return record

    def batches(self) -> "BatchReader":
        """The native unit: runs of records with consecutive sequences."""
        return BatchReader(self._next_batch)

    async def _next_batch(self) -> RecordBatch:
        while not self._batches:
            if self._failure is not None:
                raise self._failure  # Also when it is asked again: it never ends short.
            if self._is_over:
                raise StopAsyncIteration
            try:
                received = await self._received.receive()
            except trio.EndOfChannel:
                raise StopAsyncIteration from None
            if isinstance(received, GeologError):
                self._failure = received
                continue
            for fetched in received.entries:
                self._batches.extend(self._batches_of(received.segment, fetched))
        batch = self._batches.popleft()
        self._sequence_next = batch.end_sequence
        return batch

    def _batches_of(self, segment: SegmentRecord, fetched: FetchedEntry) -> list[RecordBatch]:
        header = fetched.decoded.header
        if header.kind is not EntryKind.DATA:
            return []
        found = []
        slot = 0
        for index, line in enumerate(header.lines):
            if self._is_over:
                break
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
                self._is_begun = True
        return found

    def _cut(self, batch: RecordBatch) -> RecordBatch:
        """Without the rows before the start and behind the end."""
        start, first = self._start, max(0, self._start.sequence - batch.first_sequence)
        if (batch.segment, batch.entry) == (start.segment, start.entry):
            first = max(first, start.slot - batch.first_slot)
        if start.time_us is not None and batch.timestamp_us < start.time_us:
            first = batch.end_row
        if start.transaction_id is not None and not self._is_begun:
            first = max(first, row_of_transaction(batch, start.transaction_id))
        end = self._until.end_row(batch)
        self._is_over = self._is_over or end < batch.end_row
        return attrs.evolve(batch, first_row=min(first, end), end_row=end)


@attrs.frozen
class BatchReader:
    """The same reader, batch by batch."""

    _next: Callable[[], Awaitable[RecordBatch]]

    def __aiter__(self) -> "BatchReader":
        return self

    async def __anext__(self) -> RecordBatch:
        return await self._next()


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
                if until.is_before(begin):
                    return
                with StreamWalk(scan, begin, end) as walk:
                    while (chunk := await walk.next_chunk()) is not None:
                        await send.send(chunk)
                        if until.is_past(chunk.entries[-1].decoded.header):
                            return
            except GeologError as error:
                await send.send(error)

    async with open_background() as nursery:
        nursery.start_soon(read_ahead, name=f"read ahead of {name}")
        yield Reader(name, begin, until, receive)
