"""A disk in memory that forgets, on power loss, what was not synced; and fails when told to.

Files are held twice: as the process sees them, and as they are on the disk. `crash` gives the
disk that is found after power loss. Directory changes are durable only after `sync_directory`,
and a file's bytes only after a synced write of that file, as on a real one.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import attrs
import trio

from regions.storage.disk import DiskFailedError, DiskFile, DiskFullError, Piece
from topology.errors import NotFoundError

Buffers = Sequence[bytes | bytearray | memoryview]

DISK_BYTES = 1 << 40
"""How large a disk is if nothing else is said."""

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


@attrs.define
class _Inode:
    """A file's bytes as seen, as synced, and the ranges in which they may differ.

    Both may be shorter than the file: what was allocated behind them is zero.
    """

    seen: bytearray = attrs.field(factory=bytearray)
    synced: bytearray = attrs.field(factory=bytearray)
    dirty: list[tuple[int, int]] = attrs.field(factory=list)
    seen_bytes: int = 0
    synced_bytes: int = 0
    cut_bytes: int | None = None
    """The shortest that the file was cut to since it was synced."""

    def write(self, offset: int, written: bytes) -> None:
        _put(self.seen, offset, written)
        self.seen_bytes = max(self.seen_bytes, len(self.seen))
        self.dirty.append((offset, offset + len(written)))

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.seen_bytes - offset))
        return bytes(self.seen[offset : offset + length]).ljust(length, b"\0")

    def truncate(self, length: int) -> None:
        del self.seen[length:]
        self.seen_bytes = length
        self.cut_bytes = length if self.cut_bytes is None else min(self.cut_bytes, length)

    def sync(self) -> None:
        self._cut_synced()
        for start, end in self.dirty:
            _put(self.synced, start, self.seen[start:end])
        self.dirty.clear()
        self.synced_bytes = self.seen_bytes

    def after_power_loss(self, keeps: Callable[[], bool]) -> "_Inode":
        """What is left: each sector that was not synced may have reached the disk, or not."""
        left, length = bytearray(self.synced), self.synced_bytes
        if self.seen_bytes != length and keeps():
            del left[self.seen_bytes if self.cut_bytes is None else self.cut_bytes :]
            length = self.seen_bytes
        for start, end in self.dirty:
            first_sector = start - start % SECTOR_BYTES
            for sector in range(first_sector, end, SECTOR_BYTES):
                if keeps():
                    _put(left, sector, self.seen[sector : sector + SECTOR_BYTES])
        length = max(length, len(left))
        return _Inode(bytearray(left), left, [], length, length)

    def as_seen(self) -> "_Inode":
        """The same for another process: what is not synced is in the machine's memory."""
        return _Inode(
            bytearray(self.seen),
            bytearray(self.synced),
            list(self.dirty),
            self.seen_bytes,
            self.synced_bytes,
            self.cut_bytes,
        )

    def is_synced(self, start: int, end: int) -> bool:
        """Whether these bytes would be there after power loss, whatever else is lost."""
        return end <= self.synced_bytes and not any(
            first < end and start < last for first, last in self.dirty
        )

    def replace(self, content: bytes) -> None:
        self.seen, self.synced = bytearray(content), bytearray(content)
        self.seen_bytes = self.synced_bytes = len(content)
        self.cut_bytes = None
        self.dirty.clear()

    def spoil(self, offset: int, content: bytes) -> None:
        _put(self.seen, offset, content)
        _put(self.synced, offset, content)

    def _cut_synced(self) -> None:
        if self.cut_bytes is not None:
            del self.synced[self.cut_bytes :]
            self.cut_bytes = None


def _put(content: bytearray, offset: int, written: bytes | bytearray) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(written)] = written


@attrs.define
class DiskFaults:
    """Which call fails, counted from 1 over all of its kind; and how long others take."""

    write_failing: int | None = None
    """This synced or unsynced write raises EIO; some of its bytes may be there."""
    sync_failing: int | None = None
    """The sync of this synced write raises EIO, after its bytes were written."""
    full_at_bytes: int | None = None
    """Writes and allocations that make the files longer than this in all raise ENOSPC."""
    sync_s: float = 0.0
    """How long a sync takes."""
    read_s: float = 0.0
    """How long a read takes."""


class MemoryFile:
    """An open file of a `MemoryDisk`."""

    def __init__(self, disk: "MemoryDisk", name: str, inode: _Inode) -> None:
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
        """Length as last written, allocated or cut."""
        return self._inode.seen_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write all of it there and wait until it is on disk."""
        with self._poisoned_by_failure():
            self._write(offset, buffers)
            await trio.sleep(self._disk.faults.sync_s)
            self._disk.count_sync(self._name)
            self._inode.sync()

    async def write(self, offset: int, buffers: Buffers) -> None:
        """Write without waiting for the disk."""
        await trio.lowlevel.checkpoint()
        with self._poisoned_by_failure():
            self._write(offset, buffers)

    async def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file."""
        await trio.sleep(self._disk.faults.read_s)
        found = self._inode.read(offset, length)
        self._disk.read_bytes += len(found)
        return found

    async def read_many(self, pieces: Sequence[Piece]) -> list[bytes]:
        """Read all of these."""
        return [await self.read(offset, length) for offset, length in pieces]

    async def allocate(self, offset: int, length: int) -> None:
        """Take space for these bytes. DiskFullError if there is not so much."""
        await trio.lowlevel.checkpoint()
        self._disk.count_growth(self._name, offset + length - self.size_bytes)
        self._inode.seen_bytes = max(self.size_bytes, offset + length)

    async def truncate(self, length: int) -> None:
        """Cut the file to this length; not durable until the next `write_synced`."""
        await trio.lowlevel.checkpoint()
        self._inode.truncate(length)

    async def close(self) -> None:
        """Close; nothing is synced by it."""
        await trio.lowlevel.checkpoint()

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
        self.capacity_bytes = capacity_bytes
        self.writes_count = 0
        self.syncs_count = 0
        self.read_bytes = 0
        self._seen: dict[str, _Inode] = {}
        self._synced: dict[str, _Inode] = {}
        self._names_since: list[dict[str, _Inode]] = []
        """What the directory was after each change since it was synced."""
        self._changes_synced = 0

    def __str__(self) -> str:
        return self.name

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        await trio.lowlevel.checkpoint()
        return sorted(self._seen)

    async def open(self, name: str) -> DiskFile:
        """Open an existing file for reading and writing. NotFoundError."""
        await trio.lowlevel.checkpoint()
        return MemoryFile(self, name, self._inode(name))

    async def create(self, name: str) -> DiskFile:
        """Make a new, empty file. It may be gone after power loss until `sync_directory`."""
        await trio.lowlevel.checkpoint()
        self._seen[name] = _Inode()
        self._names_since.append(dict(self._seen))
        return MemoryFile(self, name, self._seen[name])

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing what is there; not durable until `sync_directory`."""
        await trio.lowlevel.checkpoint()
        self._seen[to] = self._inode(name)
        del self._seen[name]
        self._names_since.append(dict(self._seen))

    async def remove(self, name: str) -> None:
        """Remove; not durable until `sync_directory`."""
        await trio.lowlevel.checkpoint()
        self._inode(name)
        del self._seen[name]
        self._names_since.append(dict(self._seen))

    async def sync_directory(self) -> None:
        """Wait until all creations, renames and removals before this call are on disk."""
        through = self._changes_synced + len(self._names_since)
        await trio.sleep(self.faults.sync_s)
        count = through - self._changes_synced
        if count > 0:  # Another may have synced them meanwhile.
            self._synced = self._names_since[count - 1]
            del self._names_since[:count]
            self._changes_synced = through

    async def free_bytes(self) -> int:
        """Space left for this node."""
        await trio.lowlevel.checkpoint()
        return self.capacity_bytes - self._used_bytes()

    def handed_on(self) -> "MemoryDisk":
        """The disk as the next process finds it when this one was killed.

        All that was written can be read, and what was not synced still is not.
        """
        found = MemoryDisk(capacity_bytes=self.capacity_bytes, name=self.name)
        directories = [self._seen, self._synced, *self._names_since]
        inodes = {id(inode): inode for names in directories for inode in names.values()}
        copies = {key: inode.as_seen() for key, inode in inodes.items()}
        found._seen, found._synced, *found._names_since = [
            {name: copies[id(inode)] for name, inode in names.items()} for names in directories
        ]
        return found

    def is_synced(self, name: str, offset: int, length: int) -> bool:
        """Whether these bytes of a file are there after power loss, and its name is."""
        inode = self._seen.get(name)
        return (
            inode is not None
            and self._synced.get(name) is inode
            and inode.is_synced(offset, offset + length)
        )

    def crash(self, *, keep_unsynced: bool | Random = False) -> "MemoryDisk":
        """The disk as found after power loss; this one stays as it is.

        With `keep_unsynced` all that was written is there (as after a SIGKILL); with a random
        source each sector that was not synced may be there, and as many of the directory's
        changes, in their order.
        """
        found = MemoryDisk(capacity_bytes=self.capacity_bytes, name=self.name)
        if isinstance(keep_unsynced, Random):
            chance = keep_unsynced

            def keeps() -> bool:
                return chance.random() < 0.5
        else:

            def keeps() -> bool:
                return bool(keep_unsynced)

        names = self._names_left(keep_unsynced=keep_unsynced)
        found._seen = {name: inode.after_power_loss(keeps) for name, inode in names.items()}
        found._synced = dict(found._seen)
        return found

    def _names_left(self, *, keep_unsynced: bool | Random) -> dict[str, _Inode]:
        if isinstance(keep_unsynced, Random):
            return keep_unsynced.choice([self._synced, *self._names_since])
        return self._seen if keep_unsynced else self._synced

    def content(self, name: str) -> bytes:
        """A file's bytes, as a process would read them."""
        inode = self._inode(name)
        return inode.read(0, inode.seen_bytes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all files, sorted."""
        return tuple(sorted(self._seen))

    def overwrite_at(self, name: str, offset: int, content: bytes) -> None:
        """Change some of a file's bytes on the disk."""
        self._inode(name).spoil(offset, content)

    def overwrite(self, name: str, content: bytes) -> None:
        """Replace a file's bytes on the disk, as rot or a stray hand would."""
        self._inode(name).replace(content)

    def count_write(self, name: str, growth_bytes: int) -> None:
        """One more write begins; it fails if `faults` say so."""
        self.writes_count += 1
        if self.writes_count == self.faults.write_failing:
            raise DiskFailedError(f"cannot write {name}: {os.strerror(errno.EIO)}")
        self.count_growth(name, growth_bytes)

    def count_growth(self, name: str, growth_bytes: int) -> None:
        """A file is about to take more space; DiskFullError if there is not so much."""
        limit = self.faults.full_at_bytes
        limit = self.capacity_bytes if limit is None else min(limit, self.capacity_bytes)
        if growth_bytes > 0 and self._used_bytes() + growth_bytes > limit:
            raise DiskFullError(f"cannot write {name}: {os.strerror(errno.ENOSPC)}")

    def count_sync(self, name: str) -> None:
        """One more sync begins; it fails if `faults` say so."""
        self.syncs_count += 1
        if self.syncs_count == self.faults.sync_failing:
            raise DiskFailedError(f"cannot sync {name}: {os.strerror(errno.EIO)}")

    @property
    def used_bytes(self) -> int:
        """What the files take."""
        return self._used_bytes()

    def _used_bytes(self) -> int:
        return sum(inode.seen_bytes for inode in self._seen.values())

    def _inode(self, name: str) -> _Inode:
        if name not in self._seen:
            raise NotFoundError(f"no file {name} in this data directory")
        return self._seen[name]
