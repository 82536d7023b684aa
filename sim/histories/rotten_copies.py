"""Law 15: copies that passed verification are intact on disk, not only in a node's memory.

The disks are read directly, past the nodes: a second way, too plain to have a cache.
"""

from collections.abc import Iterator

from crc32c import crc32c

from geolog.protocol.copying import final_extents
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from regions.storage.protocol.directories import directory_of
from regions.storage.protocol.records import file_name
from sim.laws.state.seen import Look, is_of_stream


def rotten_copies(now: Look) -> Iterator[str]:
    """The copies of final entries of the stream that differ on disk from what was added."""
    for record in now.ledgers.values():
        if is_of_stream(record) and "@" not in record.stream:
            yield from _rotten_in(now, record)


def _rotten_in(now: Look, record: LedgerRecord) -> Iterator[str]:
    for extent in final_extents(record):
        rule = extent.fragment.rule(record.quorum)
        for number in range(extent.fragment.first_entry, extent.last + 1):
            entry = EntryId(number)
            for slot in rule.write_set(entry):
                member = extent.fragment.ensemble[slot]
                if _is_rotten(now, member.instance, record.ledger, entry):
                    yield (
                        f"entry {entry} of ledger {record.ledger} passed verification, but is"
                        f" damaged on the disk of {member.node_id}"
                    )


def _is_rotten(now: Look, instance: InstanceId, ledger: LedgerId, entry: EntryId) -> bool:
    stores = now.stores.get(instance)
    if stores is None:
        return False
    number = directory_of(ledger, len(stores))
    [host] = [host for host, core in now.world.cores.items() if core.instance == instance]
    disk = now.world.nodes[host].bays[number].disk
    for source in reversed(stores[number].entries.files):
        place = source.table.find(ledger, entry)
        if place is not None:
            copy = disk.piece(file_name(source.file_id), place.offset, place.length)
            return crc32c(copy) != place.crc
    return False
