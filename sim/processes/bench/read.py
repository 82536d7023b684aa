"""Measures how fast one process reads a log from disk, against reading the bare files.

Two loads. The first is one stream, written in one go and read from start to end. The second
reads single ledgers of many that were written in turns. Their entries are spread over the whole
journal, so each entry is a separate disk read, for geolog and for the floor.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import attrs
import trio

from geolog.client.writing.pipeline import Pipeline
from geolog.client.writing.writer import Writer
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.protocol.ids import EntryId, LedgerId
from sim.processes.bench.figures import Figure, figure
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

    @property
    def name(self) -> str:
        """Name of its figures."""
        return "cold read"


@attrs.frozen
class _Took:
    records_count: int
    size_bytes: int
    took_s: float


async def measure_read(
    site: Site, load: ReadLoad, *, payloads: Sequence[bytes], tell: Callable[[str], None]
) -> list[Figure]:
    """Write one stream, drop it from the page cache, read it."""
    tell(f"writing {load.size_bytes >> 20} MiB")
    (stream,) = site.streams
    count = max(1, load.size_bytes // load.record_bytes)
    async with site.log.open_writer(stream, in_flight_bytes=_IN_FLIGHT_BYTES) as writer:
        await _append_all(writer, payloads, count)
    places = await _places(site, await _ledgers_of(site, [stream]))
    floor = await _floor(site, places, read_whole)
    tell(f"reading the stream from {_where(site)}")
    took = await _read_stream(site, stream)
    return _figures(f"{_how_cold(site)} read", load, took, floor)


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
    tell(f"reading {len(ledgers)} of the ledgers from {_where(site)}")
    took = await _read_ledgers(site, ledgers)
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
) -> ReadFloor | None:
    """Measure the cold floor, then drop the page cache again for the real read."""
    if not places:
        return None
    await trio.to_thread.run_sync(drop_page_cache, site.data_dirs)
    floor = await trio.to_thread.run_sync(read, places)
    await trio.to_thread.run_sync(drop_page_cache, site.data_dirs)
    return floor


async def _read_stream(site: Site, stream: str) -> _Took:
    records_count = size_bytes = 0
    started_s = trio.current_time()
    async with site.log.open_reader(stream) as reader:
        async for batch in reader.batches():
            records_count += len(batch)
            size_bytes += sum(map(len, batch.values()))
    return _Took(records_count, size_bytes, trio.current_time() - started_s)


async def _read_ledgers(site: Site, ledgers: Sequence[LedgerId]) -> _Took:
    access = site.log.access
    entries_count = size_bytes = 0
    took_s = 0.0
    for ledger in ledgers:
        record = (await access.ledgers.read_latest(ledger)).record
        last = record.last_entry
        if last is None or last < 0:
            continue
        started_s = trio.current_time()
        with LedgerStream(access.reader, record, EntryId(0), last) as stream:
            while stream.entry_next <= last:
                for fetched in await stream.read():
                    entries_count += 1
                    size_bytes += len(fetched.decoded.open(0).values()[0])
        took_s += trio.current_time() - started_s
    return _Took(entries_count, size_bytes, took_s)


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
    ]


def _how_cold(site: Site) -> str:
    return "cold" if site.data_dirs else "warm or cold"


def _where(site: Site) -> str:
    with suppress(IndexError):
        return f"the disk of {site.data_dirs[0].parent.name}"
    return "the nearest node"
