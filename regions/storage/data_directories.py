"""Open the data directories of one node together: shared limits, and which disks hang."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from regions.storage.file_disk import FILES_OPEN_MAX, FileDisk, open_file_disk


@asynccontextmanager
async def open_data_directories(
    directories: Sequence[Path], *, files_open_max: int = FILES_OPEN_MAX
) -> AsyncIterator[list[FileDisk]]:
    """Open all of them, in this order. DirectoryInUseError, DiskFailedError.

    `files_open_max` bounds the files that they together keep open while nobody reads or writes
    them.

    Directories on one file system split its free space among them; otherwise the node would
    promise the same space several times.
    """
    async with AsyncExitStack() as opened:
        share = max(1, files_open_max // len(directories))
        disks = [
            await opened.enter_async_context(open_file_disk(one, files_open_max=share))
            for one in directories
        ]
        for disk in disks:
            disk.sharers_count = sum(one.file_system == disk.file_system for one in disks)
        yield disks


def why_late(disks: Sequence[FileDisk]) -> str:
    """The disks that keep a node from ending; empty if no disk is the cause."""
    hanging = [str(disk) for disk in disks if disk.is_busy]
    if not hanging:
        return ""
    return (
        f"the disk of {' and '.join(hanging)} does not answer. Acknowledged entries are on it;"
        " check the disk before you restart the node"
    )
