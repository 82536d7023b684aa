"""Measures how fast one process reads a log, against reading the bare files.

Two loads. The first is one stream, written in one go and read from start to end: from disk,
then from the page cache, then by several readers at once, which shows what one more of them
costs the node. The second reads single ledgers of many that were written in turns. Their
entries are spread over the whole journal, so each entry is a separate disk read, for geolog and
for the floor.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import trio

from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.processor_time import processor_s
from sim.processes.bench.site import Site, open_writers
from sim.studies.places import (
    PlaceOnDisk,
    ReadFloor,
    drop_page_cache,
    places_of,
    read_places,
    read_whole,
)

LEDGERS_READ_MAX = 20
"""Number of interleaved ledgers that are read, one after the other."""

_IN_FLIGHT_BYTES = 8 << 20


@attrs.frozen(kw_only=True)
class ReadLoad:
    """Data to write and then read."""

    record_bytes: int
    size_bytes: int
    """Total size of all records."""


@attrs.frozen
class _Counted:
    """Batches and records that one reader took."""

    batches_count: int
    records_count: int
    size_bytes: int


@attrs.frozen
class _Took:
    """Batches and records that readers took together, and the time that this cost."""

    batches_count: int
    records_count: int
    size_bytes: int
    took_s: float
    reader_s: float
    """Processor time of this process."""
    nodes_s: float | None
    """Processor time of all nodes, as any may be asked; None if they are on other machines."""


async def measure_read(
    site: Site,
    load: ReadLoad,
    *,
    readers_count: int,
    payloads: Sequence[bytes],
    tell: Callable[[str], None],
) -> list[Figure]:
    """Write one stream; read it from disk, from the page cache, and by several readers."""
    tell(f"writing {load.size_bytes >> 20} MiB")
    (stream,) = site.streams
    count = max(1, load.size_bytes // load.record_bytes)
    async with site.log.open_writer(stream, in_flight_bytes=_IN_FLIGHT_BYTES) as writer:
        await _append_all(writer, payloads, count)
    places = await _places(site, await _ledgers_of(site, [stream]))
    floor = await _floor(site, places, read_whole)
    tell(f"reading the stream from {_where(site)}")
    cold = await _timed(site, partial(_read_stream, site, stream))
    tell("reading the stream from the page cache")
    floor_warm = await _floor(site, places, read_whole, is_cold=False)
    warm = await _timed(site, partial(_read_stream, site, stream))
    batches = await _timed(site, partial(_read_batches, site, stream))
    tell(f"reading the stream with {readers_count} readers")
    many = await _timed(site, *[partial(_read_batches, site, stream)] * readers_count)
    return [
        *_figures(f"{_how_cold(site)} read", load, cold, floor),
        *_figures("warm read", load, warm, floor_warm),
        *_figures_of_batches("warm read of batches", load, batches),
        *_figures_of_batches(f"{readers_count} readers of batches", load, many),
        *_cost_of_one_more(batches, many, readers_count),
    ]


async def measure_interleaved(
    site: Site, load: ReadLoad, *, payloads: Sequence[bytes], tell: Callable[[str], None]
) -> list[Figure]:
    """Write many streams in turns, one entry each, then read a few of their ledgers."""
    rounds = max(1, load.size_bytes // (load.record_bytes * len(site.streams)))
    tell(f"writing {len(site.streams)} ledgers in turns, {rounds} entries each")
    async with open_writers(site.log, site.streams, in_flight_bytes=_IN_FLIGHT_BYTES) as all_:
        for turn in range(rounds):
            pending = [one.append_nowait(payloads[turn % len(payloads)]) for one in all_]
            for each in pending:
                await each.wait()
    step = max(1, len(site.streams) // LEDGERS_READ_MAX)
    ledgers = await _ledgers_of(site, site.streams[::step][:LEDGERS_READ_MAX])
    floor = await _floor(site, await _places(site, ledgers), read_places)
    records = [(await site.log.access.ledgers.read_latest(one)).record for one in ledgers]
    tell(f"reading {len(ledgers)} of the ledgers from {_where(site)}")
    took = await _timed(site, partial(_read_ledgers, site, records))
    name = f"{_how_cold(site)} read, one of {len(site.streams)} interleaved"
    return _figures(name, load, took, floor)


async def _append_all(writer: Writer, payloads: Sequence[bytes], count: int) -> None:
    pipeline = Pipeline(writer)

    async def push() -> None:
        for number in range(count):
            await pipeline.push(payloads[number % len(payloads)])
        pipeline.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        while await pipeline.next_answers():
            pass


async def _ledgers_of(site: Site, streams: Iterable[str]) -> list[LedgerId]:
    found: list[LedgerId] = []
    for stream in streams:
        found += [LedgerId(one.ledger) for one in await site.log.list_segments(stream)]
    return found


async def _places(site: Site, ledgers: Iterable[LedgerId]) -> list[PlaceOnDisk]:
    """Where the node to read from stores them; empty for a cluster on other machines."""
    places: list[PlaceOnDisk] = []
    for ledger in ledgers:
        for data_dir in site.data_dirs[:1]:
            places += await trio.to_thread.run_sync(places_of, data_dir, ledger)
    return places


async def _floor(
    site: Site,
    places: Sequence[PlaceOnDisk],
    read: Callable[[Sequence[PlaceOnDisk]], ReadFloor],
    *,
    is_cold: bool = True,
) -> ReadFloor | None:
    """Measure the floor; if cold, drop the page cache before, and again for the real read."""
    if not places:
        return None
    if not is_cold:
        return await trio.to_thread.run_sync(read, places)
    await trio.to_thread.run_sync(drop_page_cache, site.data_dirs)
    floor = await trio.to_thread.run_sync(read, places)
    await trio.to_thread.run_sync(drop_page_cache, site.data_dirs)
    return floor


async def _timed(site: Site, *readers: Callable[[], Awaitable[_Counted]]) -> _Took:
    """Run the readers, all at once."""
    counted: list[_Counted] = []

    async def run(read: Callable[[], Awaitable[_Counted]]) -> None:
        counted.append(await read())

    started_s, reader_s = trio.current_time(), time.process_time()
    nodes_s = sum(map(processor_s, site.node_pids))
    async with trio.open_nursery() as nursery:
        for read in readers:
            nursery.start_soon(run, read)
    return _Took(
        sum(one.batches_count for one in counted),
        sum(one.records_count for one in counted),
        sum(one.size_bytes for one in counted),
        took_s=trio.current_time() - started_s,
        reader_s=time.process_time() - reader_s,
        nodes_s=sum(map(processor_s, site.node_pids)) - nodes_s if site.node_pids else None,
    )


async def _read_stream(site: Site, stream: str) -> _Counted:
    """Take the values of all records."""
    batches_count = records_count = size_bytes = 0
    async with site.log.open_reader(stream) as reader:
        async for batch in reader.batches():
            batches_count += 1
            records_count += len(batch)
            size_bytes += sum(map(len, batch.values()))
    return _Counted(batches_count, records_count, size_bytes)


async def _read_batches(site: Site, stream: str) -> _Counted:
    """Take whole batches, as programs do that work on columns."""
    batches_count = records_count = size_bytes = 0
    async with site.log.open_reader(stream) as reader:
        async for batch in reader.batches():
            batches_count += 1
            records_count += len(batch)
            size_bytes += len(batch.batch.value_column.data)
    return _Counted(batches_count, records_count, size_bytes)


async def _read_ledgers(site: Site, records: Sequence[LedgerRecord]) -> _Counted:
    entries_count = size_bytes = 0
    for record in records:
        last = record.last_entry
        if last is None or last < 0:
            continue
        with LedgerStream(site.log.access.reader, record, EntryId(0), last) as stream:
            while stream.entry_next <= last:
                for fetched in await stream.read():
                    entries_count += 1
                    size_bytes += len(fetched.decoded.open(0).values()[0])
    return _Counted(entries_count, entries_count, size_bytes)


def _figures(name: str, load: ReadLoad, took: _Took, floor: ReadFloor | None) -> list[Figure]:
    bytes_floor = None if floor is None else floor.bytes_per_s / 1e6
    return [
        figure(
            f"{name} throughput",
            took.size_bytes / took.took_s / 1e6,
            "MB/s",
            floor=bytes_floor,
        ),
        figure(
            f"{name} rate of {load.record_bytes:,} bytes",
            took.records_count / took.took_s,
            "records/s",
        ),
        *_processor_times(name, took),
    ]


def _figures_of_batches(name: str, load: ReadLoad, took: _Took) -> list[Figure]:
    return [
        *_figures(name, load, took, None),
        figure(f"{name} rate", took.batches_count / took.took_s, "batches/s"),
    ]


def _processor_times(name: str, took: _Took) -> list[Figure]:
    size_gb = took.size_bytes / 1e9
    figures = [figure(f"{name}, processor time of the reader", took.reader_s / size_gb, "s/GB")]
    if took.nodes_s is not None:
        figures.append(
            figure(f"{name}, processor time of the nodes", took.nodes_s / size_gb, "s/GB")
        )
    return figures


def _cost_of_one_more(one: _Took, many: _Took, readers_count: int) -> list[Figure]:
    """What each reader but the first cost the nodes."""
    if one.nodes_s is None or many.nodes_s is None or readers_count < 2:
        return []
    each_s = (many.nodes_s - one.nodes_s) / (readers_count - 1)
    name = "one more reader, processor time of the nodes"
    return [figure(name, each_s / (one.size_bytes / 1e9), "s/GB")]


def _how_cold(site: Site) -> str:
    return "cold" if site.data_dirs else "warm or cold"


def _where(site: Site) -> str:
    with suppress(IndexError):
        return f"the disk of {site.data_dirs[0].parent.name}"
    return "the nearest node"
