"""A journal file is damaged, repaired and settled, and then damaged again.

Only a calm world gets that far: doubt is settled only when every ledger is closed, and
compaction soon removes a file whose damage was settled. So this happens at the end of a
history.
"""

from collections.abc import Awaitable, Callable
from random import Random

import trio

from regions.storage.protocol.known_files import FileRow
from regions.storage.protocol.records import DATA_OFFSET, file_id_of, file_name
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from sim.world.faults.harm import cut_end
from sim.world.faults.targets import nodes_harmable
from sim.world.node import ALLOCATED_EXPIRY_S
from sim.world.world import World

_LOOK_S = 0.25
_LAWS_LOOK_S = 1.0
"""Longer than the laws take to see the last answers."""
_LOST_CHANCE = 0.5


async def damage_twice(
    world: World,
    rng: Random,
    *,
    repair: Callable[[], Awaitable[None]],
    ask_all: Callable[[], Awaitable[None]],
    on_damaged_again: Callable[[], None],
) -> None:
    """Damage one node's file twice, if there is something to damage."""
    hosts = nodes_harmable(world)
    if not hosts:
        return
    await trio.sleep(2 * ALLOCATED_EXPIRY_S)
    host = rng.choice(hosts)
    world.kill(host)  # So that each disk has a file that is complete.
    await _started(world, host)
    index, row = _fullest_file(world, host)
    if row is None or row.length_bytes <= DATA_OFFSET:
        return
    await _damage_first(world, host, index, row, rng)
    await repair()
    await ask_all()  # Note what the node has, now that its doubt has ended.
    store = world.cores[host].service.stores[index]
    if store.journal.files.find(row.file_id) is None or store.ledgers.is_any_in_doubt:
        return  # It was compacted already, or doubt remains that no repair can end.
    world.kill(host)
    words = await _damage_again(world.nodes[host].bays[index].disk, file_name(row.file_id), rng)
    world.trace.add("-", "fault-on", f"damage again {host} {words}")
    on_damaged_again()
    await _started(world, host)
    await repair()
    await trio.sleep(_LAWS_LOOK_S)


def _fullest_file(world: World, host: str) -> tuple[int, FileRow | None]:
    """The complete file with most entries, and the index of its disk."""
    stores = world.cores[host].service.stores
    _, index, file_id = max(
        (
            (len(source.table), index, source.file_id)
            for index, store in enumerate(stores)
            for source in store.entries.files[:-1]
        ),
        default=(0, 0, 0),
    )
    return index, stores[index].journal.files.find(file_id)


async def _damage_first(world: World, host: str, index: int, row: FileRow, rng: Random) -> None:
    """Cut off the end of the file; most of its content stays."""
    world.harmed.add(world.cores[host].instance)
    world.kill(host)
    disk = world.nodes[host].bays[index].disk
    name = file_name(row.file_id)
    least = max(DATA_OFFSET, row.length_bytes * 3 // 4)
    words = cut_end(disk, name, rng.randrange(least, row.length_bytes))
    await _remove_table(disk, name)
    world.trace.add("-", "fault-on", f"damage {host} {words}")
    await _started(world, host)


async def _damage_again(disk: MemoryDisk, name: str, rng: Random) -> str:
    await _remove_table(disk, name)
    if rng.random() < _LOST_CHANCE:
        await disk.remove(name)
        await disk.sync_directory()
        return f"{name} is lost"
    return cut_end(disk, name, rng.randrange(len(disk.content(name)) // 2))


async def _remove_table(disk: MemoryDisk, name: str) -> None:
    """Remove the file's table, which would show what the file had."""
    file_id = file_id_of(name)
    assert file_id is not None
    if table_file_name(file_id) in disk.names:
        await disk.remove(table_file_name(file_id))
        await disk.sync_directory()


async def _started(world: World, host: str) -> None:
    if host not in world.processes:
        world.restart(host)
    while host not in world.cores:  # noqa: ASYNC110 - no event for it.
        await trio.sleep(_LOOK_S)
