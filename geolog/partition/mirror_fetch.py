"""Brings to one mirror what another log of the same partition has above it.

The entries are written as they are, by a `MirrorWriter`, which checks each against the one
before it: so two logs that differ are never joined.

Rules: PROTOCOL H19.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs
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
from topology.errors import DataLostError, GeologError, UnavailableError

_AHEAD_BYTES = 8 << 20
"""Bytes that are in flight to the mirror at a time."""


class CannotFetchError(UnavailableError):
    """A log in another region cannot be read to its end, so a mirror is not completed by it."""


@attrs.define(eq=False)
class FetchProgress:
    """Counts what all fetches from one region have read: one may wait while others go on."""

    entries_count: int = 0


@attrs.define(eq=False)
class _Reading:
    """Whether a fetch waits for its source just now."""

    is_waiting: bool = True
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def end_once_still(self, progress: FetchProgress, still_s: float) -> None:
        """Cancel the reading once nothing was read from the region for this long."""
        while True:
            before = progress.entries_count
            was_waiting = self.is_waiting
            await trio.sleep(still_s)
            if was_waiting and self.is_waiting and progress.entries_count == before:
                self.scope.cancel(reason="nothing is read")
                return


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
    progress: FetchProgress,
    still_s: float,
) -> None:
    """Append to a mirror that was taken over what `source` has behind `last`.

    through: the last entry of the source, whose rows are all completed. When this returns, the
    mirror ends with it, durably, and its claim is released. Any geolog error ends it on the
    way; what the mirror has then is a prefix of the source. progress: of all fetches from that
    region. CannotFetchError if the source does not have what comes next, or if nothing of the
    region could be read for `still_s`; MirrorDivergedError, NotBehindError if the logs differ.
    Any other error is the mirror's own.
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
            reading = _Reading()
            nursery.start_soon(reading.end_once_still, progress, still_s)
            with reading.scope:
                async with aclosing(_readable(source, last, takeover)) as entries:
                    async for entry in entries:
                        reading.is_waiting = False
                        progress.entries_count += 1
                        writer.push(entry)
                        ahead_bytes += entry.encoded.length_bytes
                        if ahead_bytes > _AHEAD_BYTES:
                            await writer.wait_durable()
                            ahead_bytes = 0
                        reading.is_waiting = True
            if reading.scope.cancelled_caught:
                raise CannotFetchError(f"nothing more of {source} was read for {still_s:g} s")
            await writer.wait_durable()
            if writer.watermark != through:
                raise CannotFetchError(
                    f"{source} was read up to {writer.watermark}; its last entry is {through}"
                )
        finally:
            with trio.move_on_after(config.close_timeout_s, shield=True):
                await writer.leave()
            writer.close()


async def _readable(
    source: PartitionName, last: Watermark | None, takeover: Takeover
) -> AsyncGenerator[MirrorEntry, None]:
    """As `_entries_behind`. CannotFetchError if the log cannot be read on."""
    async with aclosing(_entries_behind(source, last, takeover)) as entries:
        while True:
            try:
                entry = await anext(entries)
            except StopAsyncIteration:
                return
            except GeologError as error:
                raise CannotFetchError(f"{source} cannot be read: {error}") from error
            yield entry


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
        if row is None:
            trim = await takeover.partitions.trims.read_latest(source)
            raise DataLostError(
                f"the mirror ends at sequence {last.sequence_next}, and {source} begins at"
                f" {trim.first_sequence}: neither has what lies between"
            )
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
