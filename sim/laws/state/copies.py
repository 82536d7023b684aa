"""The copies of an entry that members of an ensemble surely have on disk, or may have."""

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment
from geolog.protocol.messages import Answer
from regions.storage.protocol.records import file_name
from regions.storage.store import Store
from sim.fakes.memory_disk import MemoryDisk
from sim.laws.state.seen import Look


def slots_with(now: Look, ledger: LedgerId, entry: EntryId, fragment: Fragment) -> int:
    """The slots whose members would still have the entry after power loss, as a mask.

    A member that is down, or whose disk was harmed, may have it: it counts.
    """
    have = 0
    for slot, member in enumerate(fragment.ensemble):
        if may_have(now, member.instance, ledger, entry):
            have |= 1 << slot
    return have


def slots_of(mask: int) -> str:
    """The slots of a mask, in words."""
    return (
        ", ".join(str(slot) for slot in range(mask.bit_length()) if mask >> slot & 1) or "none"
    )


def may_have(now: Look, instance: InstanceId, ledger: LedgerId, entry: EntryId) -> bool:
    """Whether an instance has the entry on disk, or is down, or was harmed."""
    stores = now.stores.get(instance)
    if stores is None or instance in now.world.harmed:
        return True
    [host] = [host for host, core in now.world.cores.items() if core.instance == instance]
    bays = now.world.nodes[host].bays
    return any(
        is_on_disk(store, bay.disk, ledger, entry)
        for store, bay in zip(stores, bays, strict=True)
    )


def is_on_disk(store: Store, disk: MemoryDisk, ledger: LedgerId, entry: EntryId) -> bool:
    """Whether a node says that it has the entry, and its disk has the bytes."""
    entries = store.entries
    if entries.held(ledger, entry).answer is not Answer.HAVE:
        return False
    # Nothing of the copy in flight is on disk yet; an older copy may be.
    for source in reversed(entries.files):
        place = source.table.find(ledger, entry)
        if place is not None:
            return disk.is_synced(file_name(source.file_id), place.offset, place.length)
    return False
