"""A node's disk in the world: a `MemoryDisk` that traces every change."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs
from crc32c import crc32c

from regions.storage.disk import DiskFailedError, DiskFile, DiskFullError, FilePieces, Piece
from sim.fakes.begun_writes import BegunWrites
from sim.fakes.memory_disk import MemoryDisk

Buffers = Sequence[bytes | bytearray | memoryview]

Note = Callable[[str, str], None]
"""Gets an event and its details."""


@attrs.define(eq=False)
class WorldDisk:
    """The `Disk` of one process over the current state of its node's disk."""

    _disk: MemoryDisk
    _note: Note
    _sync_s: Callable[[], float]
    """Draws how long the next sync takes."""
    _read_s: Callable[[], float]
    """How long a read takes now."""

    def __str__(self) -> str:
        return str(self._disk)

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        return await self._disk.list()

    async def open(self, name: str) -> DiskFile:
        """Open an existing file."""
        return WorldFile(await self._disk.open(name), self)

    async def create(self, name: str) -> DiskFile:
        """Create an empty file."""
        file = await self._disk.create(name)
        self._note("disk-create", name)
        return WorldFile(file, self)

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing any file of that name."""
        await self._disk.rename(name, to)
        self._note("disk-rename", f"{name} {to}")

    async def remove(self, name: str) -> None:
        """Remove a file."""
        await self._disk.remove(name)
        self._note("disk-remove", name)

    async def sync_directory(self) -> None:
        """Wait until creations, renames and removals are on disk."""
        self.begin_sync()
        await self._disk.sync_directory()
        self._note("disk-sync-directory", "")

    async def free_bytes(self) -> int:
        """Space left for this node."""
        return await self._disk.free_bytes()

    def begin_sync(self) -> None:
        """Draw how long the next sync takes."""
        self._disk.faults.sync_s = self._sync_s()

    def begin_read(self) -> None:
        """Set how long the next read takes."""
        self._disk.faults.read_s = self._read_s()

    def note(self, event: str, details: str) -> None:
        """Add an event to the trace."""
        self._note(event, details)

    @contextmanager
    def noting_failure(self, name: str) -> Iterator[None]:
        """Add any error to the trace, and let it pass."""
        try:
            yield
        except (DiskFailedError, DiskFullError) as error:
            self._note("disk-fail", f"{name} {error}")
            raise


@attrs.define(eq=False)
class WorldFile(BegunWrites):
    """An open file of a `WorldDisk`."""

    _file: DiskFile
    _disk: WorldDisk

    @property
    def name(self) -> str:
        """Name within the directory."""
        return self._file.name

    @property
    def size_bytes(self) -> int:
        """Length as last written."""
        return self._file.size_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write all bytes at this offset and wait until they are on disk."""
        self._disk.begin_sync()
        self._note_write(offset, buffers)
        with self._disk.noting_failure(self.name):
            await self._file.write_synced(offset, buffers)
        self._disk.note("disk-sync", self.name)

    async def write(self, offset: int, buffers: Buffers) -> None:
        """Write without waiting for the disk."""
        self._note_write(offset, buffers)
        with self._disk.noting_failure(self.name):
            await self._file.write(offset, buffers)

    async def allocate(self, offset: int, length: int) -> None:
        """Allocate disk space for these bytes."""
        with self._disk.noting_failure(self.name):
            await self._file.allocate(offset, length)
        self._disk.note("disk-allocate", f"{self.name} {offset} {length}")

    async def truncate(self, length: int) -> None:
        """Truncate the file to this length."""
        await self._file.truncate(length)
        self._disk.note("disk-truncate", f"{self.name} {length}")

    async def read(self, offset: int, length: int) -> bytes:
        """Read at most this many bytes; fewer only at the end of the file."""
        self._disk.begin_read()
        return await self._file.read(offset, length)

    async def read_many(
        self, pieces: Sequence[Piece], *, soon: Sequence[FilePieces] = ()
    ) -> Sequence[bytes | memoryview]:
        """Read all of these ranges."""
        self._disk.begin_read()
        return await self._file.read_many(pieces, soon=soon)

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        """Do nothing: there is no cache over this disk."""
        await self._file.forget_cached(pieces)

    def rest(self) -> None:
        """Note that the file is complete."""
        self._file.rest()

    async def close(self) -> None:
        """Close without a sync."""
        await self._file.close()

    def _note_write(self, offset: int, buffers: Buffers) -> None:
        checksum = length = 0
        for buffer in buffers:
            checksum = crc32c(buffer, checksum)
            length += len(buffer)
        self._disk.note("disk-write", f"{self.name} {offset} {length} {checksum:08x}")
