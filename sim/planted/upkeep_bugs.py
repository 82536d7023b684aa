"""Defects of upkeep: copies, garbage, deleted streams."""

from geolog.admin.placement.fragment_change import FragmentChange
from geolog.ledger.copying.fragment_copy import CopyOutcome
from geolog.partition.stream_upkeep import StreamUpkeep
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import PartitionName
from regions.storage.protocol import garbage
from sim.planted.planted_bug import PlantedBug


def believe_all_copied(_outcome: CopyOutcome, _slot: int) -> str | None:
    """Say that a target has all copies, whatever it said."""
    return None


def needed_by_last_fragment(record: LedgerRecord | None, instance: InstanceId) -> bool:
    """Check only the last fragment."""
    if record is None:
        return False
    if record.state is not LedgerState.CLOSED or instance in record.arriving:
        return True
    return any(member.instance == instance for member in record.fragments[-1].ensemble)


async def delete_and_fence_nobody(upkeep: StreamUpkeep, name: PartitionName) -> None:
    """Remove a partition from metadata, but leave its owner and its ledger alone."""
    await upkeep.partitions.trims.drop_all(name)
    await upkeep.catalog.delete_partition(name)


async def look_at_none_who_stays(*_: object) -> str:
    """Give a slot to another region, whatever the remaining members have."""
    return ""


UPKEEP_BUGS: dict[str, PlantedBug] = {
    "copies-believed": PlantedBug(
        52,
        "the target of a copy counts as complete, whatever it answered",
        [(CopyOutcome, "why_incomplete", believe_all_copied)],
    ),
    "garbage-by-last-fragment": PlantedBug(
        54,
        "a node gives up ledgers whose last fragment it is not in",
        [(garbage, "is_needed_at", needed_by_last_fragment)],
    ),
    "deletion-fences-nobody": PlantedBug(
        55,
        "a stream is deleted without stopping its owner",
        [(StreamUpkeep, "_delete", delete_and_fence_nobody)],
        is_of_streams=True,
    ),
    "move-thins": PlantedBug(
        65,
        "a slot moves to another region though a remaining member lacks copies",
        [(FragmentChange, "_why_thinner", look_at_none_who_stays)],
        is_of_placement=True,
    ),
}
"""These bugs, by name."""
