"""The layout of a journal file: its header, and the records in it (docs/FORMATS_JOURNAL.md).

All integers are little-endian. A file begins with two copies of its header, in different
sectors, so that one damaged sector does not make the file unreadable; records start at
`DATA_OFFSET`.

A record's header checksum is seeded with the file's salt and id and the record's own offset,
which the header does not store: a block at the wrong place, or left there by an older file,
fails the check. It covers the body's checksum, which came with the entry and is never
recomputed.

Rules: PROTOCOL J7.
"""

import enum
import struct
from collections.abc import Iterable
from typing import assert_never

import attrs
from crc32c import crc32c

from geolog.protocol.ids import NO_ENTRY, NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.replica import PersistEntry, PersistFence, PersistOpen
from regions.storage.protocol.damage import Damage
from topology.errors import ConflictError, DamagedBytesError

Body = bytes | memoryview

FORMAT_VERSION = 3
DATA_OFFSET = 4096
HEADER_COPY_OFFSETS = (0, 2048)

_FILE_MAGIC = b"geologJF"
_FILE_HEADER = struct.Struct("<8sHxxIQ16s16s8sQQI")
FILE_HEADER_BYTES = _FILE_HEADER.size + 4

RECORD_MAGIC = b"gJr\x01"
"""Begins each record; its last byte is the version of the record's layout."""

_RECORD_HEADER = struct.Struct("<4sBBxxqqqqII")
_CHECKSUM = struct.Struct("<I")
RECORD_HEADER_BYTES = _RECORD_HEADER.size + _CHECKSUM.size

_SUFFIX = ".journal"
_UNFINISHED_SUFFIX = ".journal.new"


class UnknownFormatError(ConflictError):
    """Another version of geolog wrote this: start that version again."""


class RecordKind(enum.IntEnum):
    """Meaning of a record."""

    OPEN = 1
    """The ledger is known, under the epoch."""
    FENCE = 2
    """The ledger is fenced, under the epoch."""
    ENTRY = 3
    """An entry of the ledger, added under the epoch with the LAC; the body is its bytes."""
    MARK = 4
    """Everything below this record was synced before it was written; it has no body."""
    TABLE = 5
    """The body is the file's own table (`tables`); the footer follows, and nothing after it."""
    DELETE = 6
    """The ledger is deleted; its id is never used again, here or anywhere."""
    RETIRE = 7
    """The file `entry` may be missing: its live entries were copied and synced before."""
    SETTLE = 8
    """Damage of extent `epoch` to files `ledger` to `entry` was made good."""


NO_FLAGS = 0
FLAG_FIRST = 1
"""With OPEN and FENCE: the ledger was certainly unknown to the node before."""
FLAG_RECOVERY = 2
"""With ENTRY: recovery added it. It fences, and its LAC moves nothing."""
FLAG_LAST = 4
"""With MARK: only the file's table follows."""
FLAG_LET_GO = 8
"""With FENCE: the ledger's entries are given up, since other nodes hold them."""


@attrs.frozen
class FileHeader:
    """The writer of a journal file, and where the file before it ends."""

    file_id: int
    instance: InstanceId
    cluster_id: str
    salt: bytes
    """8 random bytes: leftovers of an older file with the same id fail the check."""
    predecessor_id: int = 0
    """Id of the file before this one; 0 means none."""
    predecessor_bytes: int = 0
    """Bytes of the predecessor certainly on disk: all of it, if the process that sealed it with
    its table went on to this file; otherwise the bytes below its last mark."""
    predecessor_table_crc: int = 0
    """Checksum of the table at the predecessor's end; 0 if it has none."""

    def encode(self) -> bytes:
        """All bytes of a new file before its first record."""
        packed = _FILE_HEADER.pack(
            _FILE_MAGIC,
            FORMAT_VERSION,
            DATA_OFFSET,
            self.file_id,
            bytes.fromhex(self.instance),
            bytes.fromhex(self.cluster_id),
            self.salt,
            self.predecessor_id,
            self.predecessor_bytes,
            self.predecessor_table_crc,
        )
        copy = packed + _CHECKSUM.pack(crc32c(packed))
        page = bytearray(DATA_OFFSET)
        for offset in HEADER_COPY_OFFSETS:
            page[offset : offset + len(copy)] = copy
        return bytes(page)

    @classmethod
    def decode(cls, page: bytes) -> "FileHeader":
        """Read the first intact copy. DamagedBytesError if both are damaged."""
        for offset in HEADER_COPY_OFFSETS:
            copy = page[offset : offset + FILE_HEADER_BYTES]
            if len(copy) == FILE_HEADER_BYTES and _is_intact(copy):
                return cls._unpack(copy)
        raise DamagedBytesError("both copies of the journal file's header are damaged")

    @classmethod
    def _unpack(cls, copy: bytes) -> "FileHeader":
        fields = _FILE_HEADER.unpack_from(copy)
        magic, version, data_offset, file_id, instance, cluster_id, salt, *predecessor = fields
        if (magic, version, data_offset) != (_FILE_MAGIC, FORMAT_VERSION, DATA_OFFSET):
            raise UnknownFormatError(
                f"unknown journal file format {magic!r} version {version}; this geolog reads"
                f" version {FORMAT_VERSION}: start the version that wrote it, or replace the"
                " node with `geolog node replace`"
            )
        return cls(file_id, InstanceId(instance.hex()), cluster_id.hex(), salt, *predecessor)


@attrs.frozen
class JournalRecord:
    """A record's header, as written and as found."""

    kind: RecordKind
    flags: int
    ledger: LedgerId
    entry: EntryId
    epoch: Epoch
    lac: EntryId
    body_length: int
    body_crc: int

    @property
    def is_copy(self) -> bool:
        """For ENTRY: compaction wrote it, for the bytes alone; it promises nothing."""
        return self.epoch == NO_EPOCH

    @property
    def file_id(self) -> int:
        """For RETIRE: the retired file."""
        assert self.kind is RecordKind.RETIRE
        return self.entry

    @property
    def damage(self) -> Damage:
        """For SETTLE: the damage that was made good."""
        assert self.kind is RecordKind.SETTLE
        return Damage(self.ledger, self.entry, self.epoch)


MARK = JournalRecord(
    RecordKind.MARK, NO_FLAGS, LedgerId(0), EntryId(0), Epoch(0), EntryId(0), 0, 0
)
"""All marks are alike: a mark's meaning is its offset."""

MARK_LAST = attrs.evolve(MARK, flags=FLAG_LAST)
"""The mark before a file's table."""


def record_of(persist: PersistOpen | PersistFence | PersistEntry) -> JournalRecord:
    """The record for a replica's effect."""
    match persist:
        case PersistEntry(add):
            return JournalRecord(
                RecordKind.ENTRY,
                FLAG_RECOVERY if add.is_recovery else NO_FLAGS,
                add.ledger,
                add.entry,
                add.epoch,
                add.lac,
                len(add.body),
                add.body_crc,
            )
        case PersistOpen(ledger, epoch, is_first):
            return _promise_record(
                RecordKind.OPEN, ledger, epoch, FLAG_FIRST if is_first else 0
            )
        case PersistFence(ledger, epoch, is_first, is_let_go):
            flags = FLAG_FIRST * is_first | FLAG_LET_GO * is_let_go
            return _promise_record(RecordKind.FENCE, ledger, epoch, flags)
        case _:
            assert_never(persist)


def _promise_record(
    kind: RecordKind, ledger: LedgerId, epoch: Epoch, flags: int
) -> JournalRecord:
    return attrs.evolve(MARK, kind=kind, flags=flags, ledger=ledger, epoch=epoch)


def delete_record(ledger: LedgerId) -> JournalRecord:
    """The record that says that a ledger was deleted."""
    return attrs.evolve(MARK, kind=RecordKind.DELETE, ledger=ledger)


def retire_record(file_id: int) -> JournalRecord:
    """The record that says that a journal file is about to be removed."""
    return attrs.evolve(MARK, kind=RecordKind.RETIRE, entry=EntryId(file_id))


def settle_record(damage: Damage) -> JournalRecord:
    """The record that says that this damage was made good."""
    return attrs.evolve(
        MARK,
        kind=RecordKind.SETTLE,
        ledger=LedgerId(damage.first),
        entry=EntryId(damage.last),
        epoch=Epoch(damage.extent),
    )


def copy_record(
    ledger: LedgerId, entry: EntryId, body_length: int, body_crc: int
) -> JournalRecord:
    """The record of an entry copied from a file that is about to be removed."""
    return JournalRecord(
        RecordKind.ENTRY, NO_FLAGS, ledger, entry, NO_EPOCH, NO_ENTRY, body_length, body_crc
    )


def table_record(body_length: int, body_crc: int) -> JournalRecord:
    """The record that holds a file's table."""
    return attrs.evolve(MARK, kind=RecordKind.TABLE, body_length=body_length, body_crc=body_crc)


def file_name(file_id: int) -> str:
    """Name of a journal file in the data directory."""
    return f"{file_id:016x}{_SUFFIX}"


def unfinished_name(file_id: int) -> str:
    """Name of an unfinished journal file; a restart removes it."""
    return f"{file_id:016x}{_UNFINISHED_SUFFIX}"


def is_unfinished(name: str) -> bool:
    """Whether the name is that of an unfinished journal file."""
    return name.endswith(_UNFINISHED_SUFFIX)


def file_id_of(name: str) -> int | None:
    """Id of the journal file with this name; None if the name is not a journal file's."""
    digits = name.removesuffix(_SUFFIX)
    if digits == name or len(digits) != 16 or not all(c in "0123456789abcdef" for c in digits):
        return None
    return int(digits, 16)


class RecordCodec:
    """Packs and unpacks record headers of one file, whose salt and id seed the checksums."""

    def __init__(self, file_id: int, salt: bytes) -> None:
        self.file_id = file_id
        self._seed = crc32c(salt + struct.pack("<Q", file_id))

    def pack(self, offset: int, record: JournalRecord) -> bytes:
        """The header of a record at `offset`."""
        packed = _RECORD_HEADER.pack(
            RECORD_MAGIC,
            record.kind,
            record.flags,
            record.ledger,
            record.entry,
            record.epoch,
            record.lac,
            record.body_length,
            record.body_crc,
        )
        return packed + _CHECKSUM.pack(crc32c(packed, self._seed_at(offset)))

    def pack_all(
        self, start: int, records: Iterable[tuple[JournalRecord, Body]]
    ) -> tuple[list[Body], list[int], int]:
        """Pack records in sequence: their buffers, where each body begins, and their end."""
        buffers: list[Body] = []
        body_offsets: list[int] = []
        at = start
        for record, body in records:
            buffers.append(self.pack(at, record))
            at += RECORD_HEADER_BYTES
            body_offsets.append(at)
            if record.body_length:
                buffers.append(body)
                at += record.body_length
        return buffers, body_offsets, at

    def unpack(self, offset: int, header: bytes | bytearray) -> JournalRecord | None:
        """The record with the header found at `offset`; None if damaged or not there."""
        if len(header) != RECORD_HEADER_BYTES:
            return None
        packed = header[: _RECORD_HEADER.size]
        (checksum,) = _CHECKSUM.unpack_from(header, _RECORD_HEADER.size)
        if crc32c(packed, self._seed_at(offset)) != checksum:
            return None
        return unpack_proven(header)

    def _seed_at(self, offset: int) -> int:
        return self._seed ^ crc32c(offset.to_bytes(8, "little"))


def unpack_proven(headers: bytes | bytearray, at: int = 0) -> JournalRecord | None:
    """The record whose header, its checksum proven, is at `at`; None if its kind is unknown."""
    magic, kind, flags, ledger, entry, epoch, lac, length, crc = _RECORD_HEADER.unpack_from(
        headers, at
    )
    if magic != RECORD_MAGIC or kind not in _KIND_OF:
        return None
    return JournalRecord(_KIND_OF[kind], flags, ledger, entry, epoch, lac, length, crc)


_KIND_OF = {int(kind): kind for kind in RecordKind}


def _is_intact(checked: bytes) -> bool:
    packed, checksum = checked[: -_CHECKSUM.size], checked[-_CHECKSUM.size :]
    return _CHECKSUM.pack(crc32c(packed)) == checksum
