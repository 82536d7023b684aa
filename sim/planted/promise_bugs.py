"""Defects of what nodes promise: LACs, fences, reports of damage."""

from collections.abc import Callable

import trio

from geolog.metadata.repair_queue import RepairQueue, RepairReason
from geolog.protocol.ids import NO_ENTRY, EntryId, LedgerId
from geolog.protocol.messages import Fence, Reason
from geolog.protocol.replica import (
    NO_LIMITS,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    NodeLimits,
)
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import JournalRecord
from regions.storage.protocol.tables import FoundTable
from sim.planted.planted_bug import PlantedBug

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on = LedgerReplica.on
_restore = Ledgers._restore
_on_table = Ledgers.on_table


def restore_without_lac(ledgers: Ledgers, file_id: int, record: JournalRecord) -> None:
    """Replay a record, but leave the LAC as it was."""
    known = ledgers.replica_of(record.ledger).lac
    _restore(ledgers, file_id, record)
    ledgers.replica_of(record.ledger).lac = known


def restore_table_without_lacs(ledgers: Ledgers, table: FoundTable) -> None:
    """Replay a table, but leave all LACs as they were."""
    known = {replica.ledger: replica.lac for replica in ledgers}
    _on_table(ledgers, table)
    for replica in ledgers:
        replica.lac = known.get(replica.ledger, NO_ENTRY)


def fence_nothing_when_full(
    replica: LedgerReplica,
    request: LedgerRequest,
    held: Callable[[LedgerId, EntryId], Held],
    limits: NodeLimits = NO_LIMITS,
) -> list[Effect]:
    """Refuse to fence while the disk is nearly full, as if it were new data."""
    if isinstance(request, Fence) and limits.is_read_only:
        return replica._refuse(request, Reason.READ_ONLY)
    return _on(replica, request, held, limits)


def store_though_in_doubt(
    _replica: LedgerReplica, limits: NodeLimits, *, is_recovery: bool = False
) -> bool:
    """Check only the room on the disk, not the doubt."""
    del is_recovery
    return limits.is_read_only


async def note_nothing(_queue: RepairQueue, _ledger: LedgerId, _why: RepairReason) -> None:
    """Put no ledger into the queue."""
    await trio.lowlevel.checkpoint()


PROMISE_BUGS: dict[str, PlantedBug] = {
    "lac-forgotten": PlantedBug(
        56,
        "a node forgets all LACs when it restarts",
        [
            (Ledgers, "_restore", restore_without_lac),
            (Ledgers, "on_table", restore_table_without_lacs),
        ],
    ),
    "full-no-fence": PlantedBug(
        57,
        "a node whose disk is nearly full does not fence",
        [(LedgerReplica, "on", fence_nothing_when_full)],
    ),
    "damage-not-reported": PlantedBug(
        58,
        "damaged or missing copies are not put into the repair queue",
        [(RepairQueue, "enqueue", note_nothing)],
    ),
    "writes-in-doubt": PlantedBug(
        59,
        "a ledger in doubt takes its writer's adds",
        [(LedgerReplica, "_must_not_store", store_though_in_doubt)],
    ),
}
"""These bugs, by name."""
