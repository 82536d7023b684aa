"""Reads a home's log as whole entries behind a watermark, and follows it.

The entry at the watermark is read first, and its checksum compared: a log that has another
entry there is not the one that the mirror copies, and nothing is sent from it. An empty mirror
begins with the first entry that is left.

Rules: PROTOCOL B7 and H26.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from crc32c import crc32c

from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.read_range import Begin
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import Chunk, PartitionWalk, open_walk
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.partition.mirror_entry import SegmentBegin
from geolog.protocol.ids import FIRST_SEQUENCE, NO_ENTRY, SegmentEntry, Sequence
from geolog.protocol.stream_state import SegmentRecord
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry
from relay.protocol.bridge_messages import RelayedEntry
from relay.wire.bridge import watermark_of
from topology.errors import ConflictError, TrimmedError


class HomeLog:
    """A home's log, positioned behind its last entry; `open_home_log` opens it."""

    def __init__(
        self,
        scan: PartitionScan,
        walk: PartitionWalk,
        position: Watermark | None,
        on_compared: Callable[[], None],
    ) -> None:
        self._scan = scan
        self._walk = walk
        self._last = position
        self._is_at_position = position is not None
        """Whether the next entry of the walk is the one at the position."""
        self._on_compared = on_compared

    def __repr__(self) -> str:
        return f"HomeLog({self._scan.name}, behind {self._last})"

    def rest(self) -> None:
        """Ask for nothing ahead until more is wanted."""
        self._walk.rest()

    async def next_entries(self) -> list[RelayedEntry]:
        """The next entries, at least one; waits at the tail.

        TrimmedError if entries that come next were trimmed; ConflictError if the log has
        another entry at the position. An empty list once the stream is sealed and read.
        """
        while True:
            found = await self._walk.next_chunk()
            if found is None:
                return []
            if not isinstance(found, Chunk):
                raise TrimmedError(
                    f"{self._scan.name}: the entries behind {self._last} were trimmed"
                )
            entries = [self._relayed(found.segment, one) for one in found.entries]
            taken = [one for one in entries if one is not None]
            if taken:
                return taken

    def _relayed(self, segment: SegmentRecord, fetched: FetchedEntry) -> RelayedEntry | None:
        decoded = fetched.decoded
        header = decoded.header
        watermark = watermark_of(header, decoded.data)
        if self._is_at_position:
            assert self._last is not None
            if watermark.segment > self._last.segment:
                raise TrimmedError(f"{self._scan.name}: {self._last} was trimmed")
            if watermark != self._last:
                raise ConflictError(
                    f"{self._scan.name}: the mirror ends with {self._last}, the home has"
                    f" {watermark} there"
                )
            self._is_at_position = False
            self._on_compared()
            return None
        previous, self._last = self._last, watermark
        return RelayedEntry(
            watermark,
            previous,
            SegmentBegin.of(segment) if header.entry == 0 else None,
            EncodedEntry(header, (decoded.data,), crc32c(decoded.data)).as_relayed(),
        )


def _ignore() -> None:
    pass


@asynccontextmanager
async def open_home_log(
    scan: PartitionScan,
    position: Watermark | None,
    *,
    first_sequence: Sequence = FIRST_SEQUENCE,
    on_compared: Callable[[], None] = _ignore,
) -> AsyncIterator[HomeLog]:
    """Read behind this position while the block lasts, without an end.

    on_compared: called once the log is known to have the entry at the position.
    Without a position from the beginning of the segment that has this sequence, or from the
    first one that is left.
    """
    if position is None:
        await scan.refresh()
        begin = Begin(sequence=await scan.trim())
        first = await scan.next_segment(1)
        if first is not None:
            begin = Begin(segment=first, sequence=begin.sequence)
        # At sequence 0 several segments may begin; later, one that was kept may end there.
        if first_sequence > 0 and first_sequence >= begin.sequence:
            has = await scan.last_segment(lambda one: one.first_sequence <= first_sequence)
            if has is not None:
                skipped = max(begin.sequence, has.first_sequence)
                begin = Begin(segment=has.row_number, sequence=skipped)
    else:
        await scan.refresh()
        begin = await PlaceSearch(scan).in_row(
            Begin(position.segment, position.entry, position.sequence_next)
        )
    async with open_walk(scan, begin, None) as walk:
        yield HomeLog(scan, walk, position, on_compared)


@asynccontextmanager
async def open_home_log_at(scan: PartitionScan, begin: Begin) -> AsyncIterator[HomeLog]:
    """Read from this place while the block lasts; the first entry names none before it."""
    async with open_walk(scan, begin, None) as walk:
        yield HomeLog(scan, walk, None, _ignore)


async def last_place(scan: PartitionScan) -> Begin | None:
    """The place of the log's last entry, to begin a buffer behind it; None before the first.

    The last segment may have no entry yet: then it is that of the last one before it that has.
    """
    end = await scan.end()
    if end.sequence == 0 and end.entry == 0:
        return None
    if end.entry > 0:
        return Begin(end.row_number, SegmentEntry(end.entry - 1), end.sequence)
    await scan.refresh()
    number = end.row_number
    while (row := await scan.last_segment(partial(_is_before, number))) is not None:
        number = row.row_number
        if row.last_entry is not None and row.last_entry > NO_ENTRY:
            return Begin(number, row.numbering.in_segment(row.last_entry), end.sequence)
    return Begin(end.row_number, SegmentEntry(0), end.sequence)


def _is_before(number: int, row: SegmentRecord) -> bool:
    return row.row_number < number
