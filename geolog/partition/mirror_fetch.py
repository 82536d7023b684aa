"""Brings to one mirror what another log of the same partition has above it.

The entries are written as they are, by a `MirrorWriter`, which checks each against the one
before it: so two logs that differ are never joined.

Rules: PROTOCOL H19.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import trio

from geolog.background import open_background
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.mirror_entry import MirrorEntry, SegmentBegin
from geolog.partition.mirror_writer import MirrorWriter
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import EntryId
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from geolog.protocol.watermark import Watermark
from topology.errors import DataLostError

_AHEAD_BYTES = 8 << 20
"""Bytes that are in flight to the mirror at a time."""


class _Unheard:
    """A `MirrorListener` for a caller that waits."""

    def on_durable(self, watermark: Watermark) -> None:
        """Do nothing."""


async def fetch_into(
    mirror: PartitionName,
    taken: TakenOver,
    last: Watermark | None,
    *,
    source: PartitionName,
    through: Watermark,
    stream: StreamRecord,
    forks: tuple[Fork, ...],
    takeover: Takeover,
    config: PartitionConfig,
) -> None:
    """Append to a mirror that was taken over what `source` has behind `last`.

    through: the last entry of the source, whose rows are all completed. When this returns, the
    mirror ends with it, durably, and its claim is released. Any geolog error ends it on the
    way; what the mirror has then is a prefix of the source. DataLostError if the source does
    not have what comes next; MirrorDivergedError, NotBehindError if the two logs differ.
    """
    async with open_background() as nursery:
        ledgers = LedgerAllocator(
            mirror,
            stream,
            ledgers=takeover.ledgers,
            replicas=takeover.replicas,
            region=takeover.region,
            rng=takeover.rng,
            nursery=nursery,
            config=config,
        )
        writer = MirrorWriter(
            mirror,
            stream,
            taken,
            last,
            forks,
            listener=_Unheard(),
            partitions=takeover.partitions,
            owners=takeover.owners,
            source=ledgers,
            config=config,
            now_us=takeover.now_us,
            nursery=nursery,
        )
        nursery.start_soon(writer.run, name=f"owner of {mirror}")
        try:
            ahead_bytes = 0
            async with aclosing(_entries_behind(source, last, takeover)) as entries:
                async for entry in entries:
                    writer.push(entry)
                    ahead_bytes += entry.encoded.length_bytes
                    if ahead_bytes > _AHEAD_BYTES:
                        await writer.wait_durable()
                        ahead_bytes = 0
            await writer.wait_durable()
            if writer.watermark != through:
                raise DataLostError(
                    f"{source} was read up to {writer.watermark}; its last entry is {through}"
                )
        finally:
            with trio.move_on_after(config.close_timeout_s, shield=True):
                await writer.leave()
            writer.close()


async def _entries_behind(
    source: PartitionName, last: Watermark | None, takeover: Takeover
) -> AsyncGenerator[MirrorEntry, None]:
    """The entries of a log behind this one, by rows that are all completed. DataLostError."""
    segments = SegmentList(source, takeover.partitions)
    await segments.refresh()
    if last is None:
        number = await segments.next_from(1)
        row = None if number is None else await segments.at(number)
        while row is not None and row.first_entry != SEGMENT_BEGIN:
            row = await _row_after(segments, row)
    else:
        row = await segments.row_of(last.segment, last.entry)
    previous = last
    while row is not None:
        first = EntryId(0)
        if previous is not None and row.segment == previous.segment:
            first = EntryId(max(0, row.numbering.in_ledger(previous.entry)))
        begins = first == 0 and row.first_entry == SEGMENT_BEGIN
        async with aclosing(_entries_of(row, first, takeover)) as entries:
            async for data in entries:
                begin = SegmentBegin.of(row) if begins else None
                entry = MirrorEntry.of(data, previous=previous, begin=begin)
                begins = False
                if previous is not None and entry.mark <= previous:
                    if entry.mark != previous:
                        raise DataLostError(
                            f"{source} does not have the entry that the mirror ends with,"
                            f" {previous}: it has {entry.mark} there, and another checksum"
                        )
                    continue
                previous = entry.mark
                yield entry
        row = await _row_after(segments, row)


async def _row_after(segments: SegmentList, row: SegmentRecord) -> SegmentRecord | None:
    number = await segments.next_from(row.row_number + 1)
    return None if number is None else await segments.at(number)


async def _entries_of(
    row: SegmentRecord, first: EntryId, takeover: Takeover
) -> AsyncGenerator[bytes | memoryview, None]:
    """The bytes of the entries of a completed row, from this one on."""
    assert row.last_entry is not None
    if first > row.last_entry:
        return
    ledger = (await takeover.ledgers.read(row.ledger)).record
    with LedgerStream(takeover.reader(), ledger, first, row.last_entry) as stream:
        while stream.entry_next <= row.last_entry:
            for fetched in await stream.read():
                yield fetched.decoded.data
