"""Reads a stream in order: one task per partition reads ahead into one bounded channel.

Records of one partition come in order; records of several partitions come as they arrive. A
bounded read ends at the ends found when it was opened, or fails.

Rules: PROTOCOL R6, R14.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from geolog.background import all_of, both, open_background
from geolog.client.reading.bounds import (
    AtDlsn,
    AtSequence,
    AtTransaction,
    Bound,
    LastRecords,
    Latest,
    check_order,
    wrong_order,
)
from geolog.client.reading.gone import TrimmedRun, runs_gone
from geolog.client.reading.partition_range import PartitionRange
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.read_range import Begin, Until
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, RecordBatch
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.walk import Chunk, open_walk
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import GeologError, InvalidArgumentError

Received = tuple[PartitionRange, Chunk | TrimmedRun] | GeologError


class ReadAhead:
    """The runs in what the tasks of all partitions have read: a `RunSource`."""

    def __init__(self, received: trio.MemoryReceiveChannel[Received]) -> None:
        self._received = received
        self._entries: deque[tuple[PartitionRange, SegmentRecord, FetchedEntry]] = deque()
        # Of one entry only: unpacked batches are large.
        self._batches: deque[RecordBatch | Gap] = deque()
        self._holding: list[PartitionRange] = []

    def close(self) -> None:
        """Drop what was read ahead."""
        self._entries.clear()
        self._batches.clear()

    def drop(self, wanted: PartitionRange) -> None:
        """Drop what was read ahead of one partition: nothing more of this range comes."""
        wanted.reading.cancel(reason="the range is no longer wanted")
        wanted.is_over = True
        wanted.held = None
        for _ in range(len(self._batches)):
            batch = self._batches.popleft()
            if batch.partition != wanted.name.number:
                self._batches.append(batch)

    async def next_run(self) -> RecordBatch | Gap:
        """The next run of records, or the next gap. StopAsyncIteration at the end."""
        while not self._batches:
            if self._entries:
                wanted, segment, fetched = self._entries.popleft()
                self._batches.extend(wanted.batches_of(segment, fetched))
                if wanted.is_over and wanted.diverged_last is None:
                    wanted.reading.cancel(reason="the range was read to its end")
                continue
            try:
                wanted, found = await self._receive()
            except StopAsyncIteration:
                self._batches.extend(self._held_to_the_end())
                if not self._batches:
                    raise
                continue
            if isinstance(found, Chunk):
                self._entries.extend((wanted, found.segment, one) for one in found.entries)
            elif (gap := wanted.gap_of(found)) is not None:
                return gap
            elif wanted.held is not None and wanted not in self._holding:
                self._holding.append(wanted)
        return self._batches.popleft()

    def _held_to_the_end(self) -> list[Gap]:
        """Gaps that no record followed."""
        held = [wanted.take_held() for wanted in self._holding]
        self._holding.clear()
        return [gap for gap in held if gap is not None]

    async def _receive(self) -> tuple[PartitionRange, Chunk | TrimmedRun]:
        """The next item read ahead. StopAsyncIteration at the end."""
        try:
            received = await self._received.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(received, GeologError):
            raise received
        return received


@asynccontextmanager
async def open_stream_reader(
    scans: list[PartitionScan],
    *,
    more_scans: Callable[[int], Awaitable[list[PartitionScan]]] | None = None,
    start: Bound,
    stop: Bound | None,
    is_following: bool,
    config: ReaderConfig,
) -> AsyncIterator[Reader]:
    """Read from `start` up to `stop`, exclusive; without `stop` up to the current end.

    With `is_following` the read goes on after that end, until `stop` or for ever.
    InvalidArgumentError if a bound names a place in one partition and there are several.

    more_scans(N): the partitions of the stream after the first N; None to read one partition.
    """
    # more_scans is called once the ends are known. Metadata has caught up by then, and its
    # reads never go back, so it knows every partition that existed when the read began.
    what = str(scans[0].name if len(scans) == 1 else scans[0].name.stream)
    check_one_partition(what, len(scans), start)
    check_one_partition(what, len(scans), stop)
    check_order(start, stop)
    found: list[tuple[PartitionRange, PartitionEnd | None]] = []
    while len(found) < len(scans):
        found += await all_of(
            [
                partial(found_range, scan, start, stop, is_following)
                for scan in scans[len(found) :]
            ]
        )
        if more_scans is not None:
            scans = [*scans, *await more_scans(len(scans))]
        check_one_partition(what, len(scans), start)
        check_one_partition(what, len(scans), stop)
    send, receive = trio.open_memory_channel[Received](config.ahead_chunks)
    async with open_background() as nursery, send:
        for scan, (wanted, end) in zip(scans, found, strict=True):
            nursery.start_soon(
                read_wanted, scan, wanted, end, send.clone(), name=f"read ahead of {scan.name}"
            )
        send.close()
        reader = Reader(what, ReadAhead(receive))
        try:
            yield reader
        finally:
            reader.close()


def check_one_partition(what: str, count: int, bound: Bound | None) -> None:
    """InvalidArgumentError if a bound names a place in one partition and there are several."""
    if count > 1 and isinstance(bound, AtDlsn | AtSequence | AtTransaction):
        raise InvalidArgumentError(
            f"{what} has {count} partitions, each with positions of its own: name one of them,"
            f" e.g. {what}#0"
        )


def check_count(stream: str, partitions_count: int, readers_count: int) -> None:
    """InvalidArgumentError unless so many readers can divide the partitions."""
    if not 1 <= readers_count <= partitions_count:
        raise InvalidArgumentError(
            f"{stream} cannot be divided among {readers_count} readers: give count=1 to"
            f" count={partitions_count}, the number of its partitions to read"
        )


async def found_range(
    scan: PartitionScan,
    start: Bound,
    stop: Bound | None,
    is_following: bool,  # noqa: FBT001 - Called through a partial.
) -> tuple[PartitionRange, PartitionEnd | None]:
    """Find where reading of one partition begins and ends."""

    async def find_end() -> PartitionEnd | None:
        return None if is_following else await scan.end()

    search = PlaceSearch(scan)
    end, _ = await both(find_end, scan.refresh)
    start_now, diverged = await search.in_lineage(start, end)
    stop, diverged_last = await search.in_lineage(stop, end)
    assert start_now is not None
    start = start_now
    if end is not None:
        check_within(scan.name, start, end)
        check_within(scan.name, stop, end)
    begin = await search.locate(start, end)
    until = await search.until(stop, end)
    _check_located(start, begin, stop, until)
    last = None if diverged is not None else diverged_last
    wanted = PartitionRange(
        scan.name, begin, until, scan.origin, diverged, last, is_abroad=scan.is_abroad
    )
    return wanted, end


def check_within(name: PartitionName, bound: Bound | None, end: PartitionEnd) -> None:
    """InvalidArgumentError if a bound is beyond the end."""
    match bound:
        case AtSequence(sequence, _) if sequence > end.sequence:
            raise InvalidArgumentError(
                f"sequence {sequence} is beyond the end: the next sequence of {name} is"
                f" {end.sequence}"
            )
        case AtDlsn(dlsn) if dlsn.segment > max(1, end.segment):
            raise InvalidArgumentError(
                f"{dlsn} is beyond the end: {name} ends in segment {end.segment}"
            )
        case _:
            return


def _check_located(start: Bound, begin: Begin, stop: Bound | None, until: Until) -> None:
    """InvalidArgumentError if bounds of different forms prove to be in the wrong order."""
    if not isinstance(start, AtSequence | LastRecords | Latest):
        return
    if not isinstance(stop, AtSequence | LastRecords) or until.sequence is None:
        return
    asked = begin.sequence if begin.trimmed_from is None else begin.trimmed_from
    if type(start) is not type(stop) and until.sequence < asked:
        raise wrong_order(start, stop)


async def read_wanted(
    scan: PartitionScan,
    wanted: PartitionRange,
    end: PartitionEnd | None,
    send: trio.MemorySendChannel[Received],
) -> None:
    """Read ahead until the reader that takes the records reaches the end of its range."""
    with wanted.reading:
        await _read_ahead(scan, wanted, end, send)


async def _read_ahead(
    scan: PartitionScan,
    wanted: PartitionRange,
    end: PartitionEnd | None,
    send: trio.MemorySendChannel[Received],
) -> None:
    def deliver(chunk: Chunk) -> bool:
        if wanted.until.is_past(chunk.entries[-1].decoded.header):
            return False
        try:
            send.send_nowait((wanted, chunk))
        except trio.WouldBlock:
            return False
        return True

    async with send:
        try:
            await _send_range(scan, wanted, end, send, deliver)
            if wanted.diverged_last is not None:
                await send.send((wanted, wanted.diverged_last))
        except GeologError as error:
            await send.send(error)


async def _send_range(
    scan: PartitionScan,
    wanted: PartitionRange,
    end: PartitionEnd | None,
    send: trio.MemorySendChannel[Received],
    deliver: Callable[[Chunk], bool],
) -> None:
    begin = wanted.begin
    if wanted.diverged is not None:
        await send.send((wanted, wanted.diverged))
    if begin.trimmed_from is not None:
        trim = await scan.trim_record()
        for run in runs_gone(trim, begin.trimmed_from, begin.sequence):
            await send.send((wanted, run))
    if wanted.until.is_before(begin):
        return
    async with open_walk(scan, begin, end, deliver=deliver) as walk:
        while (found := await walk.next_chunk()) is not None:
            await send.send((wanted, found))
            if isinstance(found, Chunk) and wanted.until.is_past(
                found.entries[-1].decoded.header
            ):
                return
