"""Defects of storage nodes: what stands in the place of a good method, under its signature."""

from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId
from geolog.protocol.messages import Answer, EntryAnswer
from geolog.protocol.replica import (
    NO_LIMITS,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    NodeLimits,
)
from regions.protocol.ledgers import Ledgers
from regions.protocol.records import (
    DATA_OFFSET,
    MARK,
    Body,
    FileHeader,
    Record,
    RecordCodec,
    file_name,
)
from regions.protocol.tables import Place
from regions.storage.disk import Disk
from regions.storage.entries import EntryStore, JournalFile, _Found
from regions.storage.journal import Journal
from regions.storage.open_file import OpenFile
from regions.storage.outbox import Budget
from sim.memory_disk import MemoryDisk

# A planted bug reaches into the private state of what it spoils.
# ruff: noqa: SLF001

_on = LedgerReplica.on
_checked = EntryStore._checked


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
    """Take what was meant for another node, which was at this address before."""
    return _on(replica, attrs.evolve(request, instance=replica.instance), held, limits)


def fence_forgets_lac(replica: LedgerReplica, epoch: Epoch) -> None:
    """Fence, and forget which entries are acknowledged."""
    replica.epoch_highest = max(replica.epoch_highest, epoch)
    replica.is_fenced = True
    replica.lac = NO_ENTRY


def delete_and_forget(ledgers: Ledgers, ledger: LedgerId) -> None:
    """Delete the ledger, and know nothing of it any more."""
    ledgers._replicas.pop(ledger, None)
    ledgers._first_file_ids.pop(ledger, None)


def corrupt_is_absent(
    entries: EntryStore, source: JournalFile, found: _Found, place: Place, body: memoryview
) -> EntryAnswer:
    """Say of a damaged entry that there is none."""
    answer = _checked(entries, source, found, place, body)
    return EntryAnswer(Answer.ABSENT) if answer.answer is Answer.CORRUPT else answer


def has_always_room(_budget: Budget) -> bool:
    """Let answers wait without bound."""
    return True


def any_add_moves_lac(
    replica: LedgerReplica,
    entry: EntryId,
    epoch: Epoch,
    lac: EntryId,
    *,
    is_recovery: bool,
) -> None:
    """Take the LAC of any add; recovery's counts as if its entry were acknowledged."""
    replica.epoch_highest = max(replica.epoch_highest, epoch)
    replica.entry_highest = max(replica.entry_highest, entry)
    replica.is_fenced = replica.is_fenced or is_recovery
    replica.lac = max(replica.lac, entry if is_recovery else lac)


def call_at_once(_journal: Journal, call: Callable[[], None]) -> None:
    """Wait for no sync."""
    call()


async def sync_no_directory(_disk: MemoryDisk) -> None:
    """Say that names are synced; they are not."""
    await trio.lowlevel.checkpoint()


async def check_nothing(*_arguments: object) -> None:
    """Let an empty disk pass."""
    await trio.lowlevel.checkpoint()


async def create_file_unsynced(
    disk: Disk, header: FileHeader, records: Sequence[tuple[Record, Body]] = ()
) -> OpenFile:
    """Begin the next journal file; what it takes over from the last one is not synced."""
    codec = RecordCodec(header.file_id, header.salt)
    buffers, _, end = codec.pack_all(DATA_OFFSET, records)
    name = file_name(header.file_id)
    file = await disk.create(name)
    await file.write_synced(0, [header.encode()])
    await disk.sync_directory()
    await file.write(DATA_OFFSET, [*buffers[1:], codec.pack(end, MARK)])
    return OpenFile(file, codec, end)
