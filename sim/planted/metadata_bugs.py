"""Defects in how stale or missing metadata is handled: each replaces a good method."""

from geolog.catalog.partition_owners import PartitionOwners
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import PartitionName
from sim.fakes.memory_metadata import MemoryMetadata
from sim.fakes.metadata_tree import MetadataTree
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.session_draws import (
    with_entries_moved,
    with_leaders_deposed,
    with_sessions_behind,
)
from topology.errors import DataLostError, GeologError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_check_not_lost = LedgerReader._check_not_lost


def admit_anybody(_metadata: MemoryMetadata, _tree: MetadataTree) -> bool:
    """Start a session at a server that is behind earlier answers."""
    return True


def _forget(_metadata: MemoryMetadata, _value: object) -> None:
    """Keep nothing."""


always_caught_up = property(lambda _metadata: True, _forget)
"""Of a session: its first read catches up with nothing."""


async def record_after_sync(ledgers: LedgerMetadata, ledger: LedgerId) -> LedgerRecord:
    """Trust a leader that may be deposed."""
    return (await ledgers.read_latest(ledger)).record


async def highest_after_sync(owners: PartitionOwners, name: PartitionName) -> int:
    """Trust a leader that may be deposed."""
    return (await owners.read_latest(name)).record.segment_highest


async def silence_is_unmoved(
    reader: LedgerReader, record: LedgerRecord, entry: EntryId, absent_count: int
) -> None:
    """Treat metadata that does not answer as if it said that nothing has moved."""
    try:
        await reader._record_now(record.ledger)
    except GeologError as error:
        if error.retriable:
            raise DataLostError(f"entry {entry} of ledger {record.ledger} is lost") from error
    await _check_not_lost(reader, record, entry, absent_count)


METADATA_BUGS: dict[str, PlantedBug] = {
    "session-goes-back": PlantedBug(
        70,
        "a new session reads metadata older than earlier answers",
        [
            (MemoryMetadata, "_admits", admit_anybody),
            (MemoryMetadata, "_is_caught_up", always_caught_up),
        ],
        made_for=with_sessions_behind,
    ),
    "end-after-sync": PlantedBug(
        71,
        "the end of a stream is read from a metadata leader that may be deposed",
        [
            (LedgerMetadata, "record_certain", record_after_sync),
            (PartitionOwners, "segment_highest_certain", highest_after_sync),
        ],
        made_for=with_leaders_deposed,
    ),
    "silence-as-unmoved": PlantedBug(
        72,
        "entries are reported lost while metadata does not say whether they moved",
        [(LedgerReader, "_check_not_lost", silence_is_unmoved)],
        made_for=with_entries_moved,
    ),
}
"""These bugs, by name."""
