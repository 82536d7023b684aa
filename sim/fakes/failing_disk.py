"""A disk whose n-th call fails with EIO or, for calls that take space, ENOSPC.

Calls are counted over all files of the disk. A failed write may have written some of its bytes.
A failed sync has written all of them, but it is unknown which are on the disk. After a failed
write or sync, the file must not be written again; the disk checks that.
"""

import enum
import errno
import os
from collections.abc import Callable, Sequence

import attrs

from regions.storage.disk import (
    Disk,
    DiskFailedError,
    DiskFile,
    DiskFullError,
    FilePieces,
    Piece,
    UnreadableError,
)
from sim.fakes.begun_writes import BegunWrites

Buffers = Sequence[bytes | bytearray | memoryview]


class DiskCall(enum.Enum):
    """Calls of a node to its disk."""

    WRITE = "write"
    SYNC = "sync"
    READ = "read"
    ALLOCATE = "allocate"
    TRUNCATE = "truncate"
    OPEN = "open"
    CREATE = "create"
    RENAME = "rename"
    REMOVE = "remove"
    SYNC_DIRECTORY = "sync directory"


ALL_CALLS = frozenset(DiskCall)
CALLS_THAT_TAKE_SPACE = frozenset(
    {DiskCall.WRITE, DiskCall.SYNC, DiskCall.ALLOCATE, DiskCall.CREATE}
)


def _tell_nobody(_what: str) -> None:
    pass


@attrs.define
class Failure:
    """Choice of the call that fails, and how. It counts calls, so each disk needs its own."""

    at: int | None
    """The number of the failing call, counted from 1 over all `calls`; None for no failure."""
    error: int = errno.EIO
    calls: frozenset[DiskCall] = ALL_CALLS
    on_failed: Callable[[str], None] = _tell_nobody
    """Called with a description when the call fails."""
    seen_count: int = attrs.field(default=0, init=False)
    failed: DiskCall | None = attrs.field(default=None, init=False)
    """The call that failed, if any."""
    used_again: list[str] = attrs.field(factory=list, init=False)
    """Files that were written again after a failed write or sync."""

    def pass_call(self, call: DiskCall, name: str) -> None:
        """Count a call; raise if it is the failing one."""
        if call not in self.calls:
            return
        self.seen_count += 1
        if self.seen_count != self.at:
            return
        self.failed = call
        what = f"cannot {call.value} {name}: {os.strerror(self.error)}"
        self.on_failed(what)
        if call is DiskCall.READ:
            raise UnreadableError(what)
        raise DiskFullError(what) if self.error == errno.ENOSPC else DiskFailedError(what)


class FailingFile(BegunWrites):
    """An open file of a `FailingDisk`."""

    def __init__(self, file: DiskFile, failure: Failure) -> None:
        self._file = file
        self._failure = failure
        self._has_failed = False

    @property
    def name(self) -> str:
        """Name within the directory."""
        return self._file.name

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._file.size_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write and sync; either may fail."""
        await self._write_half(offset, buffers)
        try:
            self._failure.pass_call(DiskCall.SYNC, self.name)
        except (DiskFailedError, DiskFullError):
            self._has_failed = True
            await self._file.write(offset, buffers)
            raise
        await self._file.write_synced(offset, buffers)

    async def write(self, offset: int, buffers: Buffers) -> None:
        """Write without a sync."""
        await self._write_half(offset, buffers)
        await self._file.write(offset, buffers)

    async def _write_half(self, offset: int, buffers: Buffers) -> None:
        """Write half of the bytes if the write is the failing call."""
        if self._has_failed:
            self._failure.used_again.append(self.name)
        try:
            self._failure.pass_call(DiskCall.WRITE, self.name)
        except (DiskFailedError, DiskFullError):
            self._has_failed = True
            content = b"".join(buffers)
            await self._file.write(offset, [content[: len(content) // 2]])
            raise

    async def allocate(self, offset: int, length: int) -> None:
        """Reserve space."""
        self._failure.pass_call(DiskCall.ALLOCATE, self.name)
        await self._file.allocate(offset, length)

    async def truncate(self, length: int) -> None:
        """Cut the file."""
        self._failure.pass_call(DiskCall.TRUNCATE, self.name)
        await self._file.truncate(length)

    async def read(self, offset: int, length: int) -> bytes:
        """Read."""
        self._failure.pass_call(DiskCall.READ, self.name)
        return await self._file.read(offset, length)

    async def read_many(
        self,
        pieces: Sequence[Piece],
        *,
        soon: Sequence[FilePieces] = (),  # noqa: ARG002 - Advice only.
    ) -> list[bytes]:
        """Read several pieces."""
        return [await self.read(offset, length) for offset, length in pieces]

    async def forget_cached(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Pass on the advice, which never fails."""
        await self._file.forget_cached(pieces)

    def rest(self) -> None:
        """Note that the file will not be written any more."""
        self._file.rest()

    async def close(self) -> None:
        """Close."""
        await self._file.close()


class FailingDisk:
    """A disk with one failure."""

    def __init__(self, disk: Disk, failure: Failure) -> None:
        self._disk = disk
        self._failure = failure

    def __str__(self) -> str:
        return str(self._disk)

    async def list(self) -> list[str]:
        """Names of all files."""
        return await self._disk.list()

    async def open(self, name: str) -> DiskFile:
        """Open an existing file."""
        self._failure.pass_call(DiskCall.OPEN, name)
        return FailingFile(await self._disk.open(name), self._failure)

    async def create(self, name: str) -> DiskFile:
        """Create a file."""
        self._failure.pass_call(DiskCall.CREATE, name)
        return FailingFile(await self._disk.create(name), self._failure)

    async def rename(self, name: str, to: str) -> None:
        """Rename a file."""
        self._failure.pass_call(DiskCall.RENAME, name)
        await self._disk.rename(name, to)

    async def remove(self, name: str) -> None:
        """Remove a file."""
        self._failure.pass_call(DiskCall.REMOVE, name)
        await self._disk.remove(name)

    async def sync_directory(self) -> None:
        """Sync the names."""
        self._failure.pass_call(DiskCall.SYNC_DIRECTORY, "directory")
        await self._disk.sync_directory()

    async def free_bytes(self) -> int:
        """Space left."""
        return await self._disk.free_bytes()
