"""Harm to synced bytes: bit rot, deleted data, writes to the wrong place.

In the newest file only bytes below its last mark are harmed. Above the mark a harmed record
looks like a torn write, and a node cannot tell that it had been synced.
"""

from random import Random

from geolog.protocol.ids import LedgerId
from regions.storage.protocol.records import (
    DATA_OFFSET,
    RECORD_HEADER_BYTES,
    FileHeader,
    JournalRecord,
    RecordCodec,
    RecordKind,
    file_id_of,
    file_name,
)
from regions.storage.protocol.scan import JournalWalk
from regions.storage.protocol.table_files import is_table_file
from regions.storage.store import Store
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_inode import SECTOR_BYTES
from topology.errors import DamagedBytesError

PLACE_BYTES = range(8, 24)
"""The bytes of a record's header that hold ledger and entry."""

_CUT_CHANCE = 0.3
_NEWEST_CHANCE = 0.5
_PLACE_CHANCE = 0.5


def harm_disk(disk: MemoryDisk, rng: Random) -> str | None:
    """Change bytes of some file; say what was done, or None if there is nothing to harm."""
    journals = [name for name in disk.names if file_id_of(name) is not None]
    older = [name for name in journals[:-1] if disk.content(name)]
    if journals and (not older or rng.random() < _NEWEST_CHANCE):
        end = _proven_end(disk, journals[-1])
        if end > DATA_OFFSET:
            return _harm_piece(disk, journals[-1], end, rng)
    if not older:
        return None
    name = rng.choice(older)
    content = disk.content(name)
    if rng.random() < _CUT_CHANCE:
        return cut_end(disk, name, rng.randrange(len(content)))
    return _harm_piece(disk, name, len(content), rng)


def cut_end(disk: MemoryDisk, name: str, length: int) -> str:
    """Truncate a file to this length; say what was done."""
    disk.overwrite(name, disk.content(name)[:length])
    return f"{name} truncated at {length}"


def harm_sector(disk: MemoryDisk, rng: Random) -> str | None:
    """Make a sector of a journal or table file unreadable; None if there are no files.

    Often it is a sector of a header, or near the end. Any sector of the newest file may be
    struck: a node can tell an unreadable sector above the last mark from a torn write.
    """
    journals = [name for name in disk.names if file_id_of(name) is not None]
    tables = [name for name in disk.names if is_table_file(name)]
    if not journals:
        return None
    is_newest = rng.random() < _NEWEST_CHANCE
    name = journals[-1] if is_newest else rng.choice([*journals, *tables])
    end = len(disk.content(name).rstrip(b"\0"))
    if not end:
        return None
    offset = min(rng.choice((0, DATA_OFFSET, end - 1, *rng.choices(range(end), k=3))), end - 1)
    disk.make_unreadable(name, offset)
    return f"sector at byte {offset} of {name} unreadable"


def is_newest_written(disk: MemoryDisk) -> bool:
    """Whether the newest journal file has records; if so, the next start begins another."""
    journals = [name for name in disk.names if file_id_of(name) is not None]
    return bool(journals) and any(disk.content(journals[-1])[DATA_OFFSET:])


def harm_entry(disk: MemoryDisk, store: Store, ledger: LedgerId, rng: Random) -> str | None:
    """Flip a bit in one of the last entries of a ledger, or in its record's header."""
    highest = store.ledgers.replica_of(ledger).entry_highest
    newest = store.entries.files[-1].file_id
    for entry in range(highest, max(highest - 3, -1), -1):
        for source in reversed(store.entries.files):
            place = source.table.find(ledger, entry)
            if place is None:
                continue
            name = file_name(source.file_id)
            end = place.offset + place.length
            if source.file_id != newest or end <= _proven_end(disk, name):
                is_header = rng.random() < 0.5
                offset = place.offset + (
                    _some_byte_of_header(rng) - RECORD_HEADER_BYTES
                    if is_header
                    else rng.randrange(place.length)
                )
                _flip(disk, name, offset, rng)
                return f"bit flipped at {offset} of {name}, in entry {entry} of {ledger}"
            break
    return None


def harm_fence(disk: MemoryDisk, ledger: LedgerId, rng: Random) -> str | None:
    """Flip a bit in a fence record of the newest file; None if none is below a mark."""
    journals = [name for name in disk.names if file_id_of(name) is not None]
    if not journals:
        return None
    name, end = journals[-1], _proven_end(disk, journals[-1])
    for offset, record in _records(disk.content(name)):
        if record.kind is RecordKind.FENCE and record.ledger == ledger and offset < end:
            at = offset + _some_byte_of_header(rng)
            _flip(disk, name, at, rng)
            return f"bit flipped at {at} of {name}, in the fence of {ledger}"
    return None


def _harm_piece(disk: MemoryDisk, name: str, end: int, rng: Random) -> str:
    """Flip a bit anywhere or in a record's header, or overwrite a sector, before `end`."""
    how = rng.choice(("bit", "header", "sector"))
    if how != "sector":
        starts = [offset for offset, _ in _records(disk.content(name)) if offset < end]
        offset = rng.randrange(end)
        if how == "header" and starts:
            offset = min(rng.choice(starts) + _some_byte_of_header(rng), end - 1)
        _flip(disk, name, offset, rng)
        return f"bit flipped at {offset} of {name}"
    offset = _some_sector(end, rng)
    harmed, what = _other_sector(disk, rng)
    disk.overwrite_at(name, offset, harmed[: end - offset])
    return f"{what} at {offset} of {name}"


def _some_byte_of_header(rng: Random) -> int:
    """An offset in a record's header; half of the time in its ledger or entry number."""
    is_of_place = rng.random() < _PLACE_CHANCE
    return rng.choice(PLACE_BYTES) if is_of_place else rng.randrange(RECORD_HEADER_BYTES)


def _flip(disk: MemoryDisk, name: str, offset: int, rng: Random) -> None:
    [byte] = disk.content(name)[offset : offset + 1]
    disk.overwrite_at(name, offset, bytes([byte ^ 1 << rng.randrange(8)]))


def _other_sector(disk: MemoryDisk, rng: Random) -> tuple[bytes, str]:
    if rng.random() < 0.5:
        return bytes(SECTOR_BYTES), "zeros"
    names = [name for name in disk.names if file_id_of(name) is not None and disk.content(name)]
    content = disk.content(rng.choice(names))
    start = _some_sector(len(content), rng)
    return content[start : start + SECTOR_BYTES], "another sector"


def _some_sector(end: int, rng: Random) -> int:
    return rng.randrange((end + SECTOR_BYTES - 1) // SECTOR_BYTES) * SECTOR_BYTES


def _proven_end(disk: MemoryDisk, name: str) -> int:
    """The offset of the last mark on disk: everything below it has been synced."""
    records = _records(disk.content(name))
    marks = (offset for offset, record in records if record.kind is RecordKind.MARK)
    return max((at for at in marks if disk.is_synced(name, at, RECORD_HEADER_BYTES)), default=0)


def _records(content: bytes) -> list[tuple[int, JournalRecord]]:
    """The records of a journal file, with their offsets; none if it cannot be read."""
    try:
        header = FileHeader.decode(content[:DATA_OFFSET])
    except DamagedBytesError:
        return []
    walk = JournalWalk(RecordCodec(header.file_id, header.salt), DATA_OFFSET, len(content))
    while (window := walk.window()) is not None:
        offset, length = window
        walk.take(offset, content[offset : offset + length])
    return list(walk.records())
