"""The disk seam: one directory of files, flat, written by one node alone.

Completion is awaited. The thread that writes and syncs lives below this seam, so that the
journal above it runs unchanged on the simulator's disk. After any error of `write_synced` the
file must not be written or synced again: the kernel may have marked pages clean that never
reached the disk.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from topology.errors import GeologError


class DiskFailedError(GeologError):
    """A write, sync or rename failed. What was not confirmed may be gone; never try again."""


class UnreadableError(GeologError):
    """Some bytes of a file cannot be read: they are damaged. Other nodes have copies."""


class DiskFullError(GeologError):
    """No space is left in the data directory: free some, or add a node."""


class TooManyOpenFilesError(GeologError):
    """The process has no descriptor left. Nothing failed: try again, or raise its limit."""

    retriable: ClassVar[bool] = True


Piece = tuple[int, int]
"""Offset and length of bytes in a file."""


class DiskFile(Protocol):
    """One open file. One task writes at a time; any number read."""

    @property
    def name(self) -> str:
        """Name within the directory."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length, as last written, allocated, cut, or found when it was opened."""
        ...

    async def write_synced(
        self, offset: int, buffers: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Write all of it there and wait until it is on disk."""
        ...

    async def write(
        self, offset: int, buffers: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Write without waiting for the disk."""
        ...

    async def allocate(self, offset: int, length: int) -> None:
        """Take disk space for these bytes; those behind the end are zero, and the end moves.

        DiskFullError if there is not so much: the file is as before, and may be written on.
        """
        ...

    async def truncate(self, length: int) -> None:
        """Cut the file to this length; not durable until the next `write_synced`."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file.

        UnreadableError, or TooManyOpenFilesError if it has to be opened again.
        """
        ...

    async def read_many(self, pieces: Sequence[Piece]) -> list[bytes]:
        """Read all of these at once, each as `read` does; nothing if one of them fails."""
        ...

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        """Let the next read of these bytes ask the disk, as far as the platform lets it.

        Where it does not, nothing happens: then a read may be answered from memory.
        """
        ...

    def rest(self) -> None:
        """It is not written for now: what is held open for that may be given up."""
        ...

    async def close(self) -> None:
        """Close; nothing is synced by it."""
        ...


class Disk(Protocol):
    """The seam. Calls that open a file may raise TooManyOpenFilesError."""

    def __str__(self) -> str:
        """The directory, as a person would name it."""
        ...

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        ...

    async def open(self, name: str) -> DiskFile:
        """Open an existing file for reading and writing. NotFoundError."""
        ...

    async def create(self, name: str) -> DiskFile:
        """Make a new, empty file. It may be gone after power loss until `sync_directory`."""
        ...

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing what is there; not durable until `sync_directory`."""
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
