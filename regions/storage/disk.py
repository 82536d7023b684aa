"""The disk seam: one flat directory of files, written by one node only.

Completion is awaited, or for `begin_write_synced` called back. The thread that writes and syncs
lives below this seam, so that the journal above it runs unchanged on the simulator's disk.
After any error of a synced write the file must not be written or synced again: the kernel may
have marked pages clean that never reached the disk.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from topology.errors import GeologError


class DiskFailedError(GeologError):
    """A write, sync or rename failed. Unconfirmed data may be gone; never try again."""


class UnreadableError(GeologError):
    """Some bytes of a file cannot be read: they are damaged. Other nodes have copies."""


class DiskFullError(GeologError):
    """No space is left in the data directory: free some, or add a node."""


class TooManyOpenFilesError(GeologError):
    """The process has no descriptor left. Nothing failed: try again, or raise its limit."""

    retriable: ClassVar[bool] = True


Piece = tuple[int, int]
"""Offset and length of some bytes in a file."""


OnWritten = Callable[[Exception | None], None]
"""Gets the error of a write, or None: everything is on disk. It must not raise."""


FilePieces = tuple["DiskFile", Sequence[Piece]]
"""Some bytes of one file."""


class DiskFile(Protocol):
    """One open file. One task writes at a time; any number read."""

    @property
    def name(self) -> str:
        """Name within the directory."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length, as last written, allocated or cut, or found when it was opened."""
        ...

    async def write_synced(
        self, offset: int, buffers: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Write all buffers at `offset` and wait until they are on disk."""
        ...

    def begin_write_synced(
        self,
        offset: int,
        buffers: Sequence[bytes | bytearray | memoryview],
        on_written: OnWritten,
    ) -> None:
        """Begin `write_synced` without waiting for anything.

        `on_written` is called once, after this returned, between two steps of tasks. Until then
        the write counts as one task's: nothing else may write. DiskFailedError, at once, if the
        file failed before.
        """
        ...

    async def write(
        self, offset: int, buffers: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Write without waiting for the disk."""
        ...

    async def allocate(self, offset: int, length: int) -> None:
        """Take disk space for these bytes; those past the end read as zeros, and the end moves.

        DiskFullError if there is not enough space: the file is unchanged and stays writable.
        """
        ...

    async def truncate(self, length: int) -> None:
        """Cut the file to this length; not durable until the next `write_synced`."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file.

        UnreadableError; TooManyOpenFilesError if the file must be reopened and cannot be.
        """
        ...

    async def read_many(
        self, pieces: Sequence[Piece], *, soon: "Sequence[FilePieces]" = ()
    ) -> Sequence[bytes | memoryview]:
        """Read all pieces at once, each as `read` does; one failure fails the whole call.

        soon: what will be read next, from other files; the disk may begin with it.
        """
        ...

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        """Make the next read of these bytes go to the disk, as far as the platform allows.

        Where the platform cannot, this does nothing: a read may then be answered from memory.
        """
        ...

    def rest(self) -> None:
        """Mark it as not being written for now: it need no longer be held open."""
        ...

    async def close(self) -> None:
        """Close without a sync."""
        ...


class Disk(Protocol):
    """The seam. Calls that open a file may raise TooManyOpenFilesError."""

    def __str__(self) -> str:
        """Name of the directory, for people."""
        ...

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        ...

    async def open(self, name: str) -> DiskFile:
        """Open an existing file for reading and writing. NotFoundError."""
        ...

    async def create(self, name: str) -> DiskFile:
        """Create an empty file. Power loss may remove it until `sync_directory`."""
        ...

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing an existing file; not durable until `sync_directory`."""
        ...

    async def remove(self, name: str) -> None:
        """Remove; not durable until `sync_directory`. NotFoundError."""
        ...

    async def sync_directory(self) -> None:
        """Wait until creations, renames and removals are on disk."""
        ...

    async def free_bytes(self) -> int:
        """Space left for this node."""
        ...
