"""The disk seam over a real directory.

Theory of operation. One long-lived thread writes and syncs, in request order: a thread hop for
each sync would cost as much as the sync. A started write cannot be undone, so a wait for one is
not cancelled; the caller continues when it is done. Reads that the page cache can answer are
made at once, with a call that refuses to wait for the disk; all others go to a few worker
threads. Unused files are closed, except those being written and a few more (`descriptors`).

The process sets a short `sys.setswitchinterval`. Otherwise a busy event loop keeps the thread
waiting for the interpreter far longer than the disk does.
"""

import errno
import fcntl
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

import attrs
import outcome
import trio

from regions.storage.descriptors import OUT_OF_DESCRIPTORS, Descriptors
from regions.storage.disk import (
    DiskFailedError,
    DiskFile,
    DiskFullError,
    FilePieces,
    OnWritten,
    Piece,
    TooManyOpenFilesError,
    UnreadableError,
)
from topology.errors import ConflictError, NotFoundError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_JOINED_BYTES_MAX = 4096
"""Buffers smaller than this are cheaper to join by copying than to pass to the kernel
singly."""
_IOVECS_MAX = 1024
_READ_AT_ONCE_BYTES_MAX = 1 << 20
"""Copying more than this out of the page cache would hold up the event loop."""
_READERS_COUNT_MAX = 4
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
FILES_OPEN_MAX = 64
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_CANNOT_SYNC_RANGES = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_SYNC_FLAG: int = getattr(os, "RWF_DSYNC", 0)
"""The flag of a write that also syncs; 0 where the C library has none."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class DirectoryInUseError(ConflictError):
    """Another process has this data directory open: end it, or choose another directory."""


@attrs.frozen
class _Job:
    """Work for the journal thread; it returns a call for the event loop."""

    work: Callable[[], Callable[[], object]]
    token: trio.lowlevel.TrioToken


class _JournalThread:
    """Runs one piece of work after the other, off the event loop."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.is_busy = False
        # A daemon, so that a hanging disk does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], T]) -> T:
        """Have the thread do it, and wait for the result."""
        self.begin(work, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            return trio.lowlevel.Abort.FAILED

        done: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return done

    def begin(
        self, work: Callable[[], T], on_done: "Callable[[outcome.Outcome[T]], None]"
    ) -> None:
        """Have the thread do it, and call with the result; the call must not raise."""

        def captured() -> Callable[[], object]:
            return partial(on_done, outcome.capture(work))

        self._jobs.put(_Job(captured, trio.lowlevel.current_trio_token()))

    def stop(self) -> None:
        """Let the thread end when all work is done."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.is_busy = True
            tell = job.work()
            self.is_busy = False
            try:
                job.token.run_sync_soon(tell)
            except trio.RunFinishedError:
                return


class RealFile:
    """An open file of a `FileDisk`."""

    def __init__(self, name: str, descriptor: int, disk: "FileDisk") -> None:
        """Take over the descriptor, closing it even when this fails. DiskFailedError."""
        self._name = name
        self._disk = disk
        self._has_failed = False
        self._is_all_synced = False
        """Whether all that was changed so far is on disk; for the journal's thread alone."""
        self._descriptor = disk.descriptors.adopt(
            descriptor, partial(disk.open_descriptor, name), is_kept=True
        )
        with _errors_named(f"cannot open {name} in {disk}"):
            self._size_bytes = os.fstat(descriptor).st_size

    def __repr__(self) -> str:
        return f"RealFile({self._name}, {self._size_bytes} bytes)"

    @property
    def name(self) -> str:
        """Name within the directory."""
        return self._name

    @property
    def size_bytes(self) -> int:
        """Length, as last written or found when it was opened."""
        return self._size_bytes

    async def write_synced(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at `offset` and wait until they are on disk."""
        await self._write(offset, buffers, is_synced=True)

    def begin_write_synced(
        self, offset: int, buffers: Sequence[Buffer], on_written: OnWritten
    ) -> None:
        """Begin to write all buffers at `offset`; call when they are on disk."""

        def on_done(result: "outcome.Outcome[int]") -> None:
            error: Exception | None = None
            try:
                self._size_bytes = max(self._size_bytes, result.unwrap())
            except Exception as raised:  # noqa: BLE001 - handed on.
                self._has_failed = True
                error = raised
            on_written(error)

        work = self._work_of_write(offset, buffers, is_synced=True)
        self._disk.thread.begin(work, on_done)

    async def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write without waiting for the disk."""
        await self._write(offset, buffers, is_synced=False)

    async def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file."""
        if length <= _READ_AT_ONCE_BYTES_MAX:
            found = self._read_many_cached([(offset, length)], length)
            if found is not None:
                await trio.lowlevel.checkpoint()
                return bytes(found[0])
        return await trio.to_thread.run_sync(
            self._read_waiting, offset, length, limiter=self._disk.readers
        )

    async def read_many(
        self, pieces: Sequence[Piece], *, soon: Sequence[FilePieces] = ()
    ) -> Sequence[bytes | memoryview]:
        """Read all pieces at once, each as `read` does; fails as a whole if one of them fails.

        The kernel gets advice on all of them, and on those to be read soon, before the first is
        read, so that the disk works on many at a time, and one thread reads them. (Measured:
        256 cold pieces of 4 KiB, 1 MiB apart, take 38 ms one `read` after the other, 6 ms in
        one thread, and 2 ms with the advice.) A single piece gets none: the kernel's own
        read-ahead goes further.
        """
        length_all = sum(length for _, length in pieces)
        if length_all <= _READ_AT_ONCE_BYTES_MAX:
            found = self._read_many_cached(pieces, length_all)
            if found is not None:
                await trio.lowlevel.checkpoint()
                return found

        def work() -> list[bytes]:
            with self._opened_to_read(f"{len(pieces)} pieces of ") as descriptor:
                if len(pieces) > 1 or soon:
                    _advise(descriptor, pieces)
                for file, others in soon:
                    if isinstance(file, RealFile):
                        file.advise(others)
                return [_read_fully(descriptor, offset, length) for offset, length in pieces]

        return await trio.to_thread.run_sync(work, limiter=self._disk.readers)

    def advise(self, pieces: Sequence[Piece]) -> None:
        """Have the kernel begin to read these; for the threads that read."""
        with suppress(UnreadableError, TooManyOpenFilesError), self._opened_to_read() as opened:
            _advise(opened, pieces)

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        """Drop these bytes from the page cache, so that the next read asks the disk.

        Only whole pages that are already on disk are dropped: unsynced writes stay. A file
        system that is in memory, such as tmpfs, has nothing to drop.
        """

        def work() -> None:
            with self._opened_to_read() as descriptor, suppress(OSError):
                for offset, length in pieces:
                    first = offset // _PAGE_BYTES * _PAGE_BYTES
                    end = -(-(offset + length) // _PAGE_BYTES) * _PAGE_BYTES
                    os.posix_fadvise(descriptor, first, end - first, os.POSIX_FADV_DONTNEED)

        with suppress(UnreadableError):  # The read that follows meets it, and knows the bytes.
            await trio.to_thread.run_sync(work, limiter=self._disk.readers)

    async def allocate(self, offset: int, length: int) -> None:
        """Take disk space for these bytes; those past the end read as zeros, and the end moves.

        This does not make a sync cheaper: the space is marked as unwritten, and each write
        changes that mark. (Measured on ext4: 34 us, against 36 us for a write that extends the
        file. Space filled with zeros syncs in 24 us, but doubles what the disk has to write.)
        It reserves the space: these bytes can be written when the disk is full. Where the file
        system does not support it, nothing happens.
        """
        size_bytes = self._size_bytes

        def work() -> int:
            what = f"cannot allocate {length} bytes for {self._name} in {self._disk}"
            self._is_all_synced = False
            with self._opened_to_write(what) as descriptor:
                try:
                    os.posix_fallocate(descriptor, offset, length)
                except OSError as error:
                    if error.errno in _CANNOT_ALLOCATE:
                        return size_bytes
                    if error.errno in _NO_SPACE:  # It may have taken part of the space.
                        os.ftruncate(descriptor, size_bytes)
                    raise
            return max(size_bytes, offset + length)

        try:
            self._size_bytes = await self._disk.thread.do(work)
        except DiskFailedError:
            self._has_failed = True
            raise

    async def truncate(self, length: int) -> None:
        """Cut the file to this length; not durable until the next `write_synced`."""

        def work() -> None:
            what = f"cannot cut {self._name} in {self._disk} to {length} bytes"
            self._is_all_synced = False
            with self._opened_to_write(what) as descriptor:
                os.ftruncate(descriptor, length)

        await self._disk.thread.do(work)
        self._size_bytes = length

    def rest(self) -> None:
        """No more writes follow: its descriptor may be closed when others are needed more."""
        self._disk.descriptors.let_rest(self._descriptor)

    def stay_open(self) -> None:
        """Keep it open for its readers: its name is about to go."""
        self._disk.descriptors.keep(self._descriptor)
        with self._opened_to_read():
            pass

    async def close(self) -> None:
        """Close without a sync."""
        await trio.lowlevel.checkpoint()
        with _errors_named(f"cannot close {self._name} in {self._disk}"):
            self._disk.descriptors.close(self._descriptor)

    def __del__(self) -> None:
        # A retired file is closed when its last reader lets it go.
        with suppress(OSError):  # All of it that counts was synced.
            self._disk.descriptors.close(self._descriptor)

    async def _write(self, offset: int, buffers: Sequence[Buffer], *, is_synced: bool) -> None:
        work = self._work_of_write(offset, buffers, is_synced=is_synced)
        try:
            end = await self._disk.thread.do(work)
        except (DiskFailedError, DiskFullError):
            self._has_failed = True
            raise
        self._size_bytes = max(self._size_bytes, end)

    def _work_of_write(
        self, offset: int, buffers: Sequence[Buffer], *, is_synced: bool
    ) -> Callable[[], int]:
        """The thread's part of a write; it returns the end of what it wrote."""
        if self._has_failed:
            raise DiskFailedError(f"{self._name} failed earlier; not writing to it again")
        vector = joined(buffers)

        def work() -> int:
            what = f"cannot write {self._name} in {self._disk}"
            with self._opened_to_write(what) as descriptor:
                if is_synced and self._is_all_synced and len(vector) <= _IOVECS_MAX:
                    end = self._write_range_synced(descriptor, offset, vector)
                else:
                    self._is_all_synced = False
                    end = write_all(descriptor, offset, vector)
                    if is_synced:
                        os.fdatasync(descriptor)
                        self._is_all_synced = True
            return end

        return work

    def _write_range_synced(
        self, descriptor: int, offset: int, vector: Sequence[Buffer]
    ) -> int:
        """Write all of it and wait until it is on disk, in one call; return the end.

        The kernel syncs the written range alone, as `O_DSYNC` does: the caller knows that
        nothing else of the file waits for a sync. A file system that refuses the flag is not
        asked again.
        """
        if self._disk.syncs_ranges:
            try:
                return write_all(descriptor, offset, vector, _SYNC_FLAG)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC_RANGES:
                    raise
                self._disk.syncs_ranges = False
        end = write_all(descriptor, offset, vector)
        os.fdatasync(descriptor)
        return end

    def _read_many_cached(
        self, pieces: Sequence[Piece], length_all: int
    ) -> list[memoryview] | None:
        """The pieces if the page cache has all of them; None if the disk would be asked.

        They are slices of one buffer, which nobody writes any more.
        """
        if not self._disk.descriptors.take_open(self._descriptor):
            return None  # Opening it may have to wait for the disk.
        try:
            return _read_cached(self._descriptor.number, pieces, length_all)
        except OSError:
            return None  # Missing or unreadable: the slow path reports it.
        finally:
            self._disk.descriptors.give_back(self._descriptor)

    def _read_waiting(self, offset: int, length: int) -> bytes:
        with self._opened_to_read(f"{length} bytes at {offset} of ") as descriptor:
            return _read_fully(descriptor, offset, length)

    @contextmanager
    def _opened_to_read(self, which: str = "") -> Iterator[int]:
        what = f"cannot read {which}{self._name} in {self._disk}"
        try:
            with self._disk.descriptors.lent(self._descriptor) as descriptor:
                yield descriptor
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise TooManyOpenFilesError(f"{what}: {error.strerror}") from error
            is_ours = error.errno == errno.EBADF and not self._descriptor.is_over
            assert not is_ours, f"{what}: descriptor closed under its reader"
            raise UnreadableError(f"{what}: {error.strerror}") from error

    @contextmanager
    def _opened_to_write(self, what: str) -> Iterator[int]:
        self._disk.descriptors.keep(self._descriptor)
        with _errors_named(what), self._disk.descriptors.lent(self._descriptor) as descriptor:
            yield descriptor


class FileDisk:
    """A real data directory; returned by `open_file_disk`."""

    def __init__(self, directory: Path, descriptor: int, *, files_open_max: int) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._files: WeakSet[RealFile] = WeakSet()
        self.descriptors = Descriptors(files_open_max)
        with _errors_named(f"cannot use data directory {directory}"):
            self.file_system = os.fstat(descriptor).st_dev
        self.sharers_count = 1
        """Directories of this node on the same file system, including this one."""
        self.syncs_ranges = bool(_SYNC_FLAG)
        """Whether it takes the flag of a write that syncs, as far as its thread knows."""
        self.thread = _JournalThread()
        self.readers = trio.CapacityLimiter(_READERS_COUNT_MAX)

    def __repr__(self) -> str:
        return f"FileDisk({str(self._directory)!r})"

    def __str__(self) -> str:
        return str(self._directory)

    @property
    def is_busy(self) -> bool:
        """Whether a request to the disk is still unanswered."""
        return self.thread.is_busy or self.readers.borrowed_tokens > 0

    async def list(self) -> list[str]:
        """Names of all files, sorted."""

        def work() -> list[str]:
            with _errors_named(f"cannot list {self}"):
                return sorted(os.listdir(self._descriptor))

        return await self.thread.do(work)

    async def open(self, name: str) -> DiskFile:
        """Open an existing file for reading and writing. NotFoundError."""
        return await self._open(name, os.O_RDWR)

    async def create(self, name: str) -> DiskFile:
        """Create an empty file. Power loss may remove it until `sync_directory`."""
        return await self._open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    async def rename(self, name: str, to: str) -> None:
        """Rename, replacing an existing file; not durable until `sync_directory`."""

        def work() -> None:
            with _errors_named(f"cannot rename {name} to {to} in {self}"):
                os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

        await self.thread.do(work)

    async def remove(self, name: str) -> None:
        """Remove; not durable until `sync_directory`. NotFoundError."""
        still_read = [file for file in self._files if file.name == name]

        def work() -> None:
            what = f"cannot remove {name} in {self}"
            while still_read:  # Popping drops each file as soon as it is done.
                with suppress(UnreadableError, TooManyOpenFilesError):
                    still_read.pop().stay_open()
            with _errors_named(what):
                try:
                    os.unlink(name, dir_fd=self._descriptor)
                except FileNotFoundError as error:
                    raise NotFoundError(f"{what}: {error.strerror}") from error

        await self.thread.do(work)

    async def sync_directory(self) -> None:
        """Wait until creations, renames and removals are on disk."""

        def work() -> None:
            with _errors_named(f"cannot sync directory {self._directory}"):
                os.fsync(self._descriptor)

        await self.thread.do(work)

    async def free_bytes(self) -> int:
        """Space left for this node: this directory's share of the free space."""
        with _errors_named(f"cannot get the free space of {self}"):
            found = await trio.to_thread.run_sync(os.fstatvfs, self._descriptor)
        return found.f_bavail * found.f_frsize // self.sharers_count

    async def _open(self, name: str, flags: int) -> DiskFile:
        def work() -> int:
            what = f"cannot open {name} in {self._directory}"
            with _errors_named(what):
                try:
                    return self.descriptors.open(partial(self.open_descriptor, name, flags))
                except FileNotFoundError as error:
                    if flags & os.O_CREAT:
                        raise  # The directory itself is gone.
                    raise NotFoundError(f"{what}: {error.strerror}") from error

        file = RealFile(name, await self.thread.do(work), self)
        self._files.add(file)
        return file

    def open_descriptor(self, name: str, flags: int = os.O_RDWR) -> int:
        """Open a file of the directory. OSError."""
        return os.open(name, flags | os.O_CLOEXEC, 0o644, dir_fd=self._descriptor)


@asynccontextmanager
async def open_file_disk(
    directory: Path, *, files_open_max: int = FILES_OPEN_MAX
) -> AsyncIterator[FileDisk]:
    """Open a data directory for this process alone; create it if missing.

    `files_open_max` bounds the files that stay open while nobody reads or writes them.
    """
    await trio.lowlevel.checkpoint()
    descriptor = _open_directory(directory)
    try:
        _lock(descriptor, directory)
        disk = FileDisk(directory, descriptor, files_open_max=files_open_max)
        try:
            yield disk
        finally:
            disk.thread.stop()
    finally:
        os.close(descriptor)  # This releases the lock.


def _open_directory(directory: Path) -> int:
    with _errors_named(f"cannot use data directory {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DirectoryInUseError(
            f"data directory {directory} is in use by another process: end it, or choose"
            " another directory"
        ) from error


def _read_cached(
    descriptor: int, pieces: Sequence[Piece], length_all: int
) -> list[memoryview] | None:
    """The pieces if the page cache has all of them. OSError."""
    if not length_all:
        return [memoryview(b"") for _ in pieces]
    # Ask for a single byte first: a buffer for all of them takes time to clear.
    offset = max(pieces)[0]
    if os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) != 1:
        return None
    buffer = memoryview(bytearray(length_all))
    found: list[memoryview] = []
    begin = 0
    for offset, length in pieces:
        piece = buffer[begin : begin + length]
        if length and os.preadv(descriptor, [piece], offset, os.RWF_NOWAIT) != length:
            return None
        found.append(piece.toreadonly())
        begin += length
    return found


def _advise(descriptor: int, pieces: Sequence[Piece]) -> None:
    """Have the kernel begin to read these."""
    with suppress(OSError):  # Advice only; not every file system takes it.
        for offset, length in pieces:
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


def _read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Read; shorter only at the end of the file. OSError."""
    found = os.pread(descriptor, length, offset)
    if len(found) in (0, length):
        return found
    parts = [found]
    while found and length > len(found):
        offset += len(found)
        length -= len(found)
        found = os.pread(descriptor, length, offset)
        parts.append(found)
    return b"".join(parts)


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: small neighbours are copied together."""
    vector: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) >= _JOINED_BYTES_MAX:
            if small:
                vector.append(b"".join(small))
                small.clear()
            vector.append(buffer)
        elif len(buffer):
            small.append(buffer)
    if small:
        vector.append(b"".join(small))
    return vector


def write_all(descriptor: int, offset: int, vector: Sequence[Buffer], flags: int = 0) -> int:
    """Write all of it at `offset`, with as many calls as the kernel needs; return the end.

    flags: of each call, as of `os.pwritev`.
    """
    left = list(vector)
    while left:
        count = os.pwritev(descriptor, left[:_IOVECS_MAX], offset, flags)
        offset += count
        done = 0
        while done < len(left) and count >= len(left[done]):
            count -= len(left[done])
            done += 1
        left = left[done:]
        if count:
            left[0] = memoryview(left[0])[count:]
    return offset


@contextmanager
def _errors_named(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFullError(f"{what}: {error.strerror}") from error
        if error.errno in OUT_OF_DESCRIPTORS:
            raise TooManyOpenFilesError(f"{what}: {error.strerror}") from error
        raise DiskFailedError(f"{what}: {error.strerror}") from error
