"""A disk in memory that loses unsynced data on power loss and can be made to fail.

`crash` returns the disk as found after power loss. As on a real disk, directory changes are
durable only after `sync_directory`, and a file's bytes only after a synced write to that file.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

import attrs

from regions.storage.disk import (
    DiskFailedError,
    DiskFile,
    DiskFullError,
    FilePieces,
    Piece,
    UnreadableError,
)
from sim.fakes.begun_writes import BegunWrites
from sim.fakes.directory_names import DirectoryNames
from sim.fakes.memory_inode import Inode
from sim.waits import sleep
from topology.errors import NotFoundError

Buffers = Sequence[bytes | bytearray | memoryview]

DISK_BYTES = 1 << 40
"""Default size of a disk."""


@attrs.define
class DiskFaults:
    """Number of the call of a kind that fails, from 1, and how long calls take."""

    write_failing: int | None = None
    """This write, synced or not, raises EIO; some of its bytes may be written."""
    sync_failing: int | None = None
    """The sync of this synced write raises EIO after its bytes were written."""
    full_at_bytes: int | None = None
    """Writes and allocations that grow the files beyond this total raise ENOSPC."""
    sync_s: float = 0.0
    """Duration of a sync."""
    read_s: float = 0.0
    """Duration of a read."""


class MemoryFile(BegunWrites):
    """An open file of a `MemoryDisk`."""

    def __init__(self, disk: "MemoryDisk", name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._is_poisoned = False

    @property
    def name(self) -> str:
        """Name within the directory."""
        return self._name

    @property
    def size_bytes(self) -> int:
        """Length after the last write, allocation or cut."""
        return self._inode.seen_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write all buffers and wait until they are on disk."""
        with self._poisoned_by_failure():
            self._write(offset, buffers)
            await self._disk.take_turn(self._disk.faults.sync_s)
            self._disk.count_sync(self._name)
            self._inode.sync()

    async def write(self, offset: int, buffers: Buffers) -> None:
        """Write without waiting for the disk."""
        await self._disk.take_turn()
        with self._poisoned_by_failure():
            self._write(offset, buffers)

    async def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file."""
        await self._disk.take_turn(self._disk.faults.read_s)
        if not self._inode.is_readable(offset, length):
            what = f"cannot read {length} bytes at {offset} of {self._name}"
            raise UnreadableError(f"{what}: {os.strerror(errno.EIO)}")
        found = self._inode.read(offset, length)
        self._disk.read_bytes += len(found)
        return found

    async def read_many(
        self,
        pieces: Sequence[Piece],
        *,
        soon: Sequence[FilePieces] = (),  # noqa: ARG002 - There is nothing to begin with.
    ) -> list[bytes]:
        """Read several pieces."""
        return [await self.read(offset, length) for offset, length in pieces]

    async def forget_cached(self, _pieces: Sequence[Piece]) -> None:
        """Do nothing: this disk has no cache."""
        await self._disk.take_turn()

    async def allocate(self, offset: int, length: int) -> None:
        """Reserve space for these bytes. DiskFullError if there is not enough."""
        await self._disk.take_turn()
        self._disk.count_growth(self._name, offset + length - self.size_bytes)
        self._inode.seen_bytes = max(self.size_bytes, offset + length)

    async def truncate(self, length: int) -> None:
        """Cut the file to this length; not durable until the next `write_synced`."""
        await self._disk.take_turn()
        self._inode.truncate(length)

    def rest(self) -> None:
        """Accept that the file will not be written any more."""

    async def close(self) -> None:
        """Close without a sync."""
        await self._disk.take_turn()

    def _write(self, offset: int, buffers: Buffers) -> None:
        written = b"".join(buffers)
        self._disk.count_write(self._name, offset + len(written) - self.size_bytes)
        self._inode.write(offset, written)

    @contextmanager
    def _poisoned_by_failure(self) -> Iterator[None]:
        assert not self._is_poisoned, f"{self._name} was used again after a failure"
        try:
            yield
        except (DiskFailedError, DiskFullError):
            self._is_poisoned = True
            raise


class MemoryDisk:
    """A data directory in memory."""

    def __init__(self, *, capacity_bytes: int = DISK_BYTES, name: str = "in memory") -> None:
        self.name = name
        self.faults = DiskFaults()
        self.is_instant = False
        """Whether calls return at once, without a turn for other tasks. For exhaustive tests
        with one task, in which millions of empty turns would take most of the time."""
        self.capacity_bytes = capacity_bytes
        self.writes_count = 0
        self.syncs_count = 0
        self.read_bytes = 0
        self._names = DirectoryNames[Inode]({})

    @classmethod
    def holding(cls, contents: Mapping[str, bytes], *, name: str) -> "MemoryDisk":
        """A disk with these files on it."""
        disk = cls(name=name)
        disk._names = DirectoryNames(
            {
                each: Inode(bytearray(content), len(content), len(content))
                for each, content in contents.items()
            }
        )
        return disk

    def __str__(self) -> str:
        return self.name

    async def take_turn(self, duration_s: float = 0.0) -> None:
        """Let other tasks run while a call lasts."""
        if not self.is_instant:
            await sleep(duration_s)

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        await self.take_turn()
        return sorted(self._names.seen)

    async def open(self, name: str) -> DiskFile:
        """Open an existing file for reading and writing. NotFoundError."""
        await self.take_turn()
        return MemoryFile(self, name, self._inode(name))

    async def create(self, name: str) -> DiskFile:
        """Create an empty file. Until `sync_directory`, a power loss may remove it."""
        await self.take_turn()
        self._names.create(name, Inode())
        return MemoryFile(self, name, self._inode(name))

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing an existing file; not durable until `sync_directory`."""
        await self.take_turn()
        self._inode(name)
        self._names.rename(name, to)

    async def remove(self, name: str) -> None:
        """Remove; not durable until `sync_directory`."""
        await self.take_turn()
        self._inode(name)
        self._names.remove(name)

    async def sync_directory(self) -> None:
        """Wait until all creations, renames and removals before this call are on disk."""
        through = self._names.changes_count
        await self.take_turn(self.faults.sync_s)
        self._names.sync(through)

    async def free_bytes(self) -> int:
        """Space left for this node."""
        await self.take_turn()
        return self.capacity_bytes - self._used_bytes()

    def handed_on(self) -> "MemoryDisk":
        """The disk as the next process finds it after this one was killed.

        All written data can be read; unsynced data is still unsynced.
        """
        found = MemoryDisk(capacity_bytes=self.capacity_bytes, name=self.name)
        found._names = self._names.copied(Inode.as_seen)
        return found

    def is_synced(self, name: str, offset: int, length: int) -> bool:
        """Whether these bytes of a file, and its name, survive a power loss."""
        inode = self._names.seen.get(name)
        return (
            inode is not None
            and self._names.is_synced(name, inode)
            and inode.is_synced(offset, offset + length)
        )

    def crash(self, *, keep_unsynced: bool | Random = False) -> "MemoryDisk":
        """The disk as found after power loss; this one stays as it is.

        With `keep_unsynced=True`, all written data is there, as after a SIGKILL. With a random
        source, each unsynced sector and each unsynced change of the directory may be there.
        """
        found = MemoryDisk(capacity_bytes=self.capacity_bytes, name=self.name)
        if isinstance(keep_unsynced, Random):
            chance = keep_unsynced

            def keeps() -> bool:
                return chance.random() < 0.5
        else:

            def keeps() -> bool:
                return bool(keep_unsynced)

        kept = _changes_kept(self._names.unsynced_count, keep_unsynced=keep_unsynced)
        names = self._names.after_power_loss(kept)
        left = {name: inode.after_power_loss(keeps) for name, inode in names.items()}
        found._names = DirectoryNames(left)
        return found

    def content(self, name: str) -> bytes:
        """A file's bytes as a process would read them."""
        inode = self._inode(name)
        return inode.read(0, inode.seen_bytes)

    def piece(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file as a process would read them."""
        return self._inode(name).read(offset, length)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all files, sorted."""
        return tuple(sorted(self._names.seen))

    def make_unreadable(self, name: str, offset: int) -> None:
        """Make the sector of this byte unreadable."""
        self._inode(name).make_unreadable(offset)

    def overwrite_at(self, name: str, offset: int, content: bytes) -> None:
        """Change some of a file's bytes on the disk."""
        self._inode(name).spoil(offset, content)

    def overwrite(self, name: str, content: bytes) -> None:
        """Replace a file's bytes on the disk, as bit rot or a stray tool would."""
        self._inode(name).replace(content)

    def count_write(self, name: str, growth_bytes: int) -> None:
        """Count a write, which fails if `faults` say so."""
        self.writes_count += 1
        if self.writes_count == self.faults.write_failing:
            raise DiskFailedError(f"cannot write {name}: {os.strerror(errno.EIO)}")
        self.count_growth(name, growth_bytes)

    def count_growth(self, name: str, growth_bytes: int) -> None:
        """Check that a file can grow. DiskFullError if there is not enough space."""
        limit = self.faults.full_at_bytes
        limit = self.capacity_bytes if limit is None else min(limit, self.capacity_bytes)
        if growth_bytes > 0 and self._used_bytes() + growth_bytes > limit:
            raise DiskFullError(f"cannot write {name}: {os.strerror(errno.ENOSPC)}")

    def count_sync(self, name: str) -> None:
        """Count a sync, which fails if `faults` say so."""
        self.syncs_count += 1
        if self.syncs_count == self.faults.sync_failing:
            raise DiskFailedError(f"cannot sync {name}: {os.strerror(errno.EIO)}")

    @property
    def used_bytes(self) -> int:
        """Space that the files take."""
        return self._used_bytes()

    def _used_bytes(self) -> int:
        return sum(inode.seen_bytes for inode in self._names.seen.values())

    def _inode(self, name: str) -> Inode:
        if name not in self._names.seen:
            raise NotFoundError(f"no file {name} in this data directory")
        return self._names.seen[name]


def _changes_kept(count: int, *, keep_unsynced: bool | Random) -> list[bool]:
    """Whether each of the changes of a directory survives: often a prefix, or any of them."""
    if not isinstance(keep_unsynced, Random):
        return [keep_unsynced] * count
    first_lost = keep_unsynced.choice(range(count + 1))
    later = [keep_unsynced.random() < 0.5 for _ in range(first_lost + 1, count)]
    return [*[True] * first_lost, False, *later][:count]
