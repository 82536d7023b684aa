"""The data directories of one node, opened together: what they share, and which hang."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from regions.storage.file_disk import FILES_OPEN_MAX, FileDisk, open_file_disk


@asynccontextmanager
async def open_data_directories(
    directories: Sequence[Path], *, files_open_max: int = FILES_OPEN_MAX
) -> AsyncIterator[list[FileDisk]]:
    """Open all of them, in this order. DirectoryInUseError, DiskFailedError.

    Together they keep so many files open that are not written and that nobody reads.

    Those that lie on one file system have a part of its free space each: else the node would
    promise the same space once for each.
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
    """What a node that does not come to its end waits for; empty if not for a disk."""
    hanging = [str(disk) for disk in disks if disk.is_busy]
    if not hanging:
        return ""
    return (
        f"the disk of {' and '.join(hanging)} does not answer. What was acknowledged is on it;"
        " see to the disk before the node starts again"
    )
