"""Defects of a node's data directories: several at once, and the names of their files."""

import trio

from regions.storage.protocol.add_runs import AddRuns
from sim.planted.planted_bug import PlantedBug
from sim.world.disk import WorldDisk

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001


def synced_in_one_directory(runs: AddRuns, directory: int) -> int | None:
    """Answer all adds once those of this directory are on disk, whatever the others lack."""
    own = runs._runs[directory]
    own.popleft()
    through = own[0].first - 1 if own else runs._taken_through
    if through <= runs._synced_through:
        return None
    runs._synced_through = through
    return through


async def sync_directory_later(disk: WorldDisk) -> None:
    """Start a sync of the names, and do not wait for it."""
    disk.begin_sync()
    trio.lowlevel.spawn_system_task(disk._disk.sync_directory)
    disk.note("disk-sync-directory", "")
    await trio.lowlevel.checkpoint()


DIRECTORY_BUGS: dict[str, PlantedBug] = {
    "synced-in-one-directory": PlantedBug(
        61,
        "adds are answered once one of a node's directories has synced its share",
        [(AddRuns, "on_synced", synced_in_one_directory)],
        is_of_streams=True,
    ),
    "directory-sync-not-awaited": PlantedBug(
        62,
        "a directory sync is started but not awaited",
        [(WorldDisk, "sync_directory", sync_directory_later)],
    ),
}
"""These bugs, by name."""
