"""A relay in a few lines: the home's log as it is stored, pushed into a mirror."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

import geolog
from geolog.admin.ledger_entries import ledger_end, read_entries
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.partition.mirror_entry import MirrorEntry, SegmentBegin
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.ids import EntryId
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName, StreamRecord
from geolog.protocol.watermark import Watermark

STREAM = "shop/carts"
HOME = "us-east"
TARGET = "eu-west"
REGIONS = {HOME: 3, TARGET: 4}


@attrs.frozen
class StoredEntry:
    """An entry of a log, as its nodes have it."""

    row: SegmentRecord
    data: bytes
    mark: Watermark


@attrs.define
class Durable:
    """Hears how far a mirror is durable."""

    marks: list[Watermark] = attrs.field(factory=list)
    moved: trio.Event = attrs.field(factory=trio.Event)

    def on_durable(self, watermark: Watermark) -> None:
        self.marks.append(watermark)
        self.moved.set()
        self.moved = trio.Event()


async def create(
    log: geolog.Log,
    *,
    segment_bytes: int = 1 << 20,
    partitions: int = 1,
    evict_bytes: int | None = None,
) -> None:
    await log.create_stream(
        STREAM,
        mode="regional",
        home=HOME,
        relay_to=[TARGET],
        segment_bytes=segment_bytes,
        partitions=partitions,
        relay_evict_bytes=evict_bytes,
    )


async def record_of(log: geolog.Log, name: str = STREAM) -> StreamRecord:
    catalog = StreamCatalog(log.access.metadata, log.access.paths)
    return await catalog.read_latest(StreamName.parse(name))


async def home_of(log: geolog.Log, number: int = 0) -> PartitionName:
    return (await record_of(log)).partition(number)


async def mirror_of(log: geolog.Log, number: int = 0, region: str = TARGET) -> PartitionName:
    return attrs.evolve(await home_of(log, number), region=region)


async def rows_of(log: geolog.Log, name: PartitionName) -> list[SegmentRecord]:
    return [one.record for one in await log.access.partitions.segments.all(name)]


async def entries_of(log: geolog.Log, name: PartitionName) -> list[StoredEntry]:
    """All entries of a log, at home or in a mirror, in order."""
    found: list[StoredEntry] = []
    for row in await rows_of(log, name):
        taken: list[FetchedEntry] = []
        record = (await log.access.ledgers.read(row.ledger)).record
        end = await ledger_end(log.access, record)
        if row.last_entry is not None:
            end = row.last_entry
        await read_entries(log.access, record, EntryId(0), end, taken.append)
        for one in taken:
            data = bytes(one.decoded.data)
            mark = MirrorEntry.of(data, previous=None).mark
            assert row.numbering.is_place_of(one.entry, mark.segment, mark.entry)
            found.append(StoredEntry(row, data, mark))
    return found


def relayed(entries: list[StoredEntry], *, behind: Watermark | None) -> list[MirrorEntry]:
    """The entries of a home as its relay sends them to a mirror that ends there."""
    marks = [one.mark for one in entries]
    start = 0 if behind is None else marks.index(behind) + 1
    return [
        MirrorEntry.of(
            entries[place].data,
            previous=marks[place - 1] if place > 0 and (place > start or behind) else None,
            begin=SegmentBegin.of(entries[place].row),
        )
        for place in range(start, len(entries))
    ]


@asynccontextmanager
async def open_mirror(
    log: geolog.Log, listener: Durable | None = None, *, number: int = 0
) -> AsyncIterator[MirrorWriter]:
    record = await record_of(log)
    name = await mirror_of(log, number, log.region or "")
    async with log.partition_opener.open_mirror(record, name, listener or Durable()) as mirror:
        yield mirror


async def relay(log: geolog.Log, *, count: int | None = None, number: int = 0) -> None:
    """Bring the mirror in the client's region `count` entries further, or to the home's end."""
    entries = await entries_of(log, await home_of(log, number))
    async with open_mirror(log, number=number) as mirror:
        for entry in relayed(entries, behind=mirror.watermark)[:count]:
            mirror.push(entry)
        await mirror.wait_durable()
