"""Defects of storage nodes: each function replaces a good method."""

from collections.abc import Callable, Sequence

import attrs
import trio
from crc32c import crc32c

from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import NO_ENTRY, NO_EPOCH, EntryId, Epoch, LedgerId
from geolog.protocol.messages import Answer, EntryAnswer, Fence, Read
from geolog.protocol.replica import (
    NO_LIMITS,
    AnswerRead,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    NodeLimits,
    Reply,
    ReplySynced,
)
from regions.storage import identity
from regions.storage.disk import Disk, DiskFailedError
from regions.storage.entries import EntryStore, JournalFile, _Found
from regions.storage.found_files import FoundFile
from regions.storage.journal import Journal, _Write
from regions.storage.open_file import OpenFile
from regions.storage.outbox import Outbox
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import (
    DATA_OFFSET,
    MARK,
    RECORD_HEADER_BYTES,
    Body,
    FileHeader,
    JournalRecord,
    RecordCodec,
    file_name,
    unpack_proven,
)
from regions.storage.protocol.scan import JournalWalk
from regions.storage.protocol.tables import EntryPlace
from regions.storage.read_lane import ReadLane
from regions.storage.replay import Replay
from sim.fakes.memory_disk import MemoryDisk
from sim.world.faults.harm import PLACE_BYTES

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on = LedgerReplica.on
_on_fence = LedgerReplica._on_fence
_checked = EntryStore._checked
_on_written = Journal._on_written
_pack = RecordCodec.pack
_note_known = identity._note_known
_proven_end = Replay._proven_end

_CHECKSUM_BYTES = 4
_PLACE = slice(PLACE_BYTES.start, PLACE_BYTES.stop)


def read_without_fence(_replica: LedgerReplica, request: Read) -> list[Effect]:
    """Answer recovery's reads like any others."""
    return [AnswerRead(attrs.evolve(request, fence_epoch=NO_EPOCH), is_synced=False)]


def answer_fence_at_once(replica: LedgerReplica, request: Fence) -> list[Effect]:
    """Fence, and answer while the record is on its way to the disk."""
    effects = _on_fence(replica, request)
    return [Reply(one.message) if isinstance(one, ReplySynced) else one for one in effects]


def fence_in_memory(replica: LedgerReplica, epoch: Epoch) -> list[Effect]:
    """Fence, and journal nothing."""
    replica.restore_fence(epoch)
    return []


def on_any_instance(
    replica: LedgerReplica,
    request: LedgerRequest,
    held: Callable[[LedgerId, EntryId], Held],
    limits: NodeLimits = NO_LIMITS,
) -> list[Effect]:
    """Take a request for another node that was at this address before."""
    return _on(replica, attrs.evolve(request, instance=replica.instance), held, limits)


def fence_forgets_lac(replica: LedgerReplica, epoch: Epoch) -> None:
    """Fence, and forget which entries are acknowledged."""
    replica.epoch_highest = max(replica.epoch_highest, epoch)
    replica.is_fenced = True
    replica.lac = NO_ENTRY


def delete_and_forget(ledgers: Ledgers, ledger: LedgerId) -> None:
    """Delete the ledger, and forget everything about it."""
    ledgers._replicas.pop(ledger, None)
    ledgers._first_file_ids.pop(ledger, None)


def corrupt_is_absent(
    entries: EntryStore, source: JournalFile, found: _Found, place: EntryPlace, body: memoryview
) -> EntryAnswer:
    """Say that a damaged entry is absent."""
    answer = _checked(entries, source, found, place, body)
    return EntryAnswer(Answer.ABSENT) if answer.answer is Answer.CORRUPT else answer


def has_always_room(_lane: ReadLane) -> bool:
    """Let answers wait without a bound."""
    return True


async def wait_for_nothing(_outbox: Outbox) -> None:
    """Take the next request, however many answers wait."""
    await trio.lowlevel.checkpoint()


def any_add_moves_lac(
    replica: LedgerReplica,
    entry: EntryId,
    epoch: Epoch,
    lac: EntryId,
    *,
    is_recovery: bool,
) -> None:
    """Take the LAC of any add; treat recovery's as if its entry were acknowledged."""
    replica.epoch_highest = max(replica.epoch_highest, epoch)
    replica.entry_highest = max(replica.entry_highest, entry)
    replica.is_fenced = replica.is_fenced or is_recovery
    replica.lac = max(replica.lac, entry if is_recovery else lac)


def call_at_once(_journal: Journal, call: Callable[[], None]) -> None:
    """Wait for no sync."""
    call()


def write_until_it_works(journal: Journal, write: _Write, error: Exception | None) -> None:
    """Retry after the disk has failed."""
    if isinstance(error, DiskFailedError):
        journal._begin_write(write)
    else:
        _on_written(journal, write, error)


def end_at_first_gap(replay: Replay, found: FoundFile, walk: JournalWalk) -> int:
    """Take any unreadable part as the torn end of the file."""
    end = _proven_end(replay, found, walk)
    return min([end, *(gap.start for gap in walk.gaps)])


def pack_without_place(codec: RecordCodec, offset: int, record: JournalRecord) -> bytes:
    """Leave ledger and entry out of the checksum."""
    header = _pack(codec, offset, record)[:-_CHECKSUM_BYTES]
    return header + _crc_without_place(codec, offset, header)


def unpack_without_place(
    codec: RecordCodec, offset: int, header: bytes | bytearray
) -> JournalRecord | None:
    """Check the checksum of the rest."""
    if len(header) != RECORD_HEADER_BYTES:
        return None
    checked, checksum = header[:-_CHECKSUM_BYTES], header[-_CHECKSUM_BYTES:]
    is_intact = _crc_without_place(codec, offset, checked) == checksum
    return unpack_proven(header) if is_intact else None


def _crc_without_place(codec: RecordCodec, offset: int, header: bytes | bytearray) -> bytes:
    checked = bytearray(header)
    checked[_PLACE] = bytes(len(PLACE_BYTES))
    checksum: int = crc32c(checked, codec._seed_at(offset))
    return checksum.to_bytes(_CHECKSUM_BYTES, "little")


async def sync_no_directory(_disk: MemoryDisk) -> None:
    """Report names as synced that are not."""
    await trio.lowlevel.checkpoint()


async def check_nothing(*_arguments: object) -> None:
    """Accept an empty disk."""
    await trio.lowlevel.checkpoint()


async def note_whoever_comes(
    metadata: Metadata, cluster: str, record: NodeRecord, known: NodeRecord | None
) -> None:
    """Assign the node id to this disk, whichever disk it belonged to."""
    if known is None:
        await _note_known(metadata, cluster, record, known)
        return
    path = ClusterPaths(cluster).node_known(record.node_id)
    stored = await metadata.get(path)
    await metadata.put(path, seal_document(record), stored.version)


async def create_file_unsynced(
    disk: Disk, header: FileHeader, records: Sequence[tuple[JournalRecord, Body]] = ()
) -> OpenFile:
    """Begin the next journal file without a sync of what it takes over from the last one."""
    codec = RecordCodec(header.file_id, header.salt)
    buffers, _, end = codec.pack_all(DATA_OFFSET, records)
    name = file_name(header.file_id)
    file = await disk.create(name)
    await file.write_synced(0, [header.encode()])
    await disk.sync_directory()
    await file.write(DATA_OFFSET, [*buffers[1:], codec.pack(end, MARK)])
    return OpenFile(file, codec, end)
