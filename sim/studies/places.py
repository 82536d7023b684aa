"""Finds the entries of a ledger on a node's disk and measures how fast they can be read.

The floor of a read is a process that reads the same bytes from the same places and discards
them. The places come from the tables of sealed journal files. Entries in the open file are left
out: they are in the page cache anyway.
"""

import os
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import attrs

from regions.storage.protocol.records import file_id_of
from regions.storage.protocol.tables import FOOTER_BYTES, Footer, FoundTable

_READ_BYTES = 1 << 20


@attrs.frozen
class PlaceOnDisk:
    """Location of one entry's body."""

    path: Path
    offset: int
    length: int
    ledger: int


@attrs.frozen
class ReadFloor:
    """Result of reading without geolog."""

    bytes_per_s: float
    reads_per_s: float


def drop_page_cache(data_dirs: Iterable[Path]) -> None:
    """Drop all files there from the page cache, so that reads go to the disk."""
    for path in (path for each in data_dirs for path in sorted(each.iterdir())):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def places_of(data_dir: Path, ledger: int) -> list[PlaceOnDisk]:
    """Places of the ledger's entries in the sealed files of a data directory, in order."""
    places: dict[int, PlaceOnDisk] = {}
    for path in sorted(data_dir.iterdir()):
        file_id = file_id_of(path.name)
        table = None if file_id is None else _table_of(path, file_id)
        if table is None:
            continue
        for row in map(table.entries.row, range(len(table.entries))):
            if row.ledger == ledger:
                places[row.entry] = PlaceOnDisk(
                    path, row.place.offset, row.place.length, ledger
                )
    return [places[entry] for entry in sorted(places)]


def _table_of(path: Path, file_id: int) -> FoundTable | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER_BYTES))
        footer = Footer.decode(file.read(FOOTER_BYTES), file_id)
        if footer is None:
            return None
        file.seek(footer.table_offset)
        return FoundTable(file.read(footer.table_length))


def read_places(places: Sequence[PlaceOnDisk]) -> ReadFloor:
    """Read one ledger after the other, with one call for each place.

    The kernel is told all places of a ledger first, as a node tells it, so that the disk works
    on many at a time.
    """
    now_s = time.perf_counter  # noqa: TID251 - It does nothing but measure time.
    ledgers = [list(each) for _, each in groupby(places, lambda place: place.ledger)]
    files = {place.path: os.open(place.path, os.O_RDONLY) for place in places}
    try:
        started_s = now_s()
        for each in ledgers:
            for place in each:
                file = files[place.path]
                os.posix_fadvise(file, place.offset, place.length, os.POSIX_FADV_WILLNEED)
            for place in each:
                os.pread(files[place.path], place.length, place.offset)
        took_s = now_s() - started_s
    finally:
        for file in files.values():
            os.close(file)
    size_bytes = sum(place.length for place in places)
    return ReadFloor(size_bytes / took_s, len(places) / took_s)


def read_whole(places: Sequence[PlaceOnDisk]) -> ReadFloor:
    """Read the files with these places sequentially, up to the last place."""
    now_s = time.perf_counter  # noqa: TID251 - It does nothing but measure time.
    ends: dict[Path, int] = {}
    for place in places:
        ends[place.path] = max(ends.get(place.path, 0), place.offset + place.length)
    files = {path: os.open(path, os.O_RDONLY) for path in ends}
    try:
        started_s = now_s()
        for path, end in ends.items():
            for offset in range(0, end, _READ_BYTES):
                os.pread(files[path], min(_READ_BYTES, end - offset), offset)
        took_s = now_s() - started_s
    finally:
        for file in files.values():
            os.close(file)
    return ReadFloor(sum(ends.values()) / took_s, len(places) / took_s)
