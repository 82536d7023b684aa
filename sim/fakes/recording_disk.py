"""The disk seam over another disk; it knows at every moment what a power loss would leave.

Theory of operation. `RecordingDisk` is a recorded directory as one process sees it: the disk at
its place, a real `FileDisk` or one in memory, with every call noted in the record. Bytes are
noted before the real call, so a power loss in the middle of the call finds them unsynced.

Each call passes *moments* of its process's life (`ProcessLife`): before the call, between write
and sync, and after the call. At a chosen moment the process is cut off. From then on, each call
that would change a disk raises and does nothing; reads still work, or the node would take its
end for damage. Then there are two ways to go on. `after_power_loss` makes a new directory of
the data still on the disk. Or, as after SIGKILL, another process uses the same directory: it
sees all written data, and unsynced data is still unsynced.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from regions.storage.disk import Disk, DiskFailedError, DiskFile, FilePieces, Piece
from sim.fakes.begun_writes import BegunWrites
from sim.fakes.recorded_bytes import RecordedBytes
from sim.fakes.recorded_directory import RecordedDirectory

Buffers = Sequence[bytes | bytearray | memoryview]


class CutOffError(DiskFailedError):
    """The process has lost its disk: it lost power or was killed."""


@attrs.define(eq=False)
class ProcessLife:
    """The life of a process that uses recorded directories: its power supply, so to speak."""

    cut_off_at: int | None = None
    """The moment at which it is cut off, counted from 1 over all its disks."""
    sync_s: float = 0.0
    """Minimum duration of a sync."""
    cut_off_after_shortened: int | None = None
    """Cut it off this many moments after the next shortening of a file, during its seal."""
    on_cut_off: Callable[[], None] | None = None
    """Called once, at the moment of the cut."""
    moments_count: int = attrs.field(default=0, init=False)
    is_cut_off: bool = attrs.field(default=False, init=False)
    _is_in_aim: bool = attrs.field(default=False, init=False)

    @property
    def is_cut_off_at_seal(self) -> bool:
        """Whether it was cut off where `cut_off_after_shortened` said."""
        return self.is_cut_off and self._is_in_aim

    def cut_off(self) -> None:
        """Prevent all further changes by this process."""
        if not self.is_cut_off:
            self.is_cut_off = True
            if self.on_cut_off is not None:
                self.on_cut_off()

    def forget_who_asked(self) -> None:
        """Drop `on_cut_off`: the process has ended by itself."""
        self.on_cut_off = None

    def check_there(self) -> None:
        """CutOffError if the process is cut off."""
        if self.is_cut_off:
            raise CutOffError("the process was cut off from its disks")

    def note_shortened(self) -> None:
        """Note that a file will be shortened, as happens when a preallocated file is sealed."""
        if self.cut_off_after_shortened is not None and not self._is_in_aim:
            self._is_in_aim = True
            self.cut_off_at = self.moments_count + self.cut_off_after_shortened

    def pass_moment(self) -> None:
        """Pass one moment; CutOffError if the process is cut off at it or was before."""
        self.check_there()
        self.moments_count += 1
        if self.moments_count == self.cut_off_at:
            self.cut_off()
            self.check_there()


class RecordingFile(BegunWrites):
    """An open file of a `RecordingDisk`."""

    def __init__(self, life: ProcessLife, file: DiskFile, recorded: RecordedBytes) -> None:
        self._life = life
        self._file = file
        self._recorded = recorded

    def __repr__(self) -> str:
        return f"RecordingFile({self.name}, {self.size_bytes} bytes)"

    @property
    def name(self) -> str:
        """Name within the directory."""
        return self._file.name

    @property
    def size_bytes(self) -> int:
        """Length of the real file."""
        return self._file.size_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        """Write all buffers; after the sync they survive a power loss."""
        await self.write(offset, buffers)
        await trio.sleep(self._life.sync_s)
        self._life.pass_moment()
        self._recorded.sync()
        self._life.pass_moment()

    async def write(self, offset: int, buffers: Buffers) -> None:
        """Write without a sync."""
        self._life.pass_moment()
        self._recorded.write(offset, b"".join(buffers))
        with trio.CancelScope(shield=True):  # As noted, even where a disk could be cancelled.
            await self._file.write(offset, buffers)
        self._life.pass_moment()

    async def allocate(self, offset: int, length: int) -> None:
        """Reserve disk space; not durable until a sync."""
        self._life.pass_moment()
        await self._file.allocate(offset, length)
        self._recorded.grow(offset + length)
        self._life.pass_moment()

    async def truncate(self, length: int) -> None:
        """Cut the file; not durable until a sync."""
        self._life.note_shortened()
        self._life.pass_moment()
        self._recorded.cut(length)
        with trio.CancelScope(shield=True):
            await self._file.truncate(length)
        self._life.pass_moment()

    async def read(self, offset: int, length: int) -> bytes:
        """Read from the real file."""
        return await self._file.read(offset, length)

    async def read_many(
        self, pieces: Sequence[Piece], *, soon: Sequence[FilePieces] = ()
    ) -> Sequence[bytes | memoryview]:
        """Read several pieces from the real file."""
        return await self._file.read_many(pieces, soon=soon)

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        """Drop pieces of the real file from the page cache."""
        await self._file.forget_cached(pieces)

    def rest(self) -> None:
        """Note that the file will not be written any more."""
        self._file.rest()

    async def close(self) -> None:
        """Close without a sync."""
        await self._file.close()


class RecordingDisk:
    """A directory as one process sees it; opened by `open_recording_disk`."""

    def __init__(self, disk: Disk, directory: RecordedDirectory, life: ProcessLife) -> None:
        self._disk = disk
        self._directory = directory
        self.life = life

    def __repr__(self) -> str:
        return f"RecordingDisk({self._directory!r})"

    async def list(self) -> list[str]:
        """Names of all files, sorted."""
        self.life.check_there()
        return await self._disk.list()

    async def open(self, name: str) -> DiskFile:
        """Open an existing file. NotFoundError."""
        self.life.check_there()
        file = await self._disk.open(name)
        return RecordingFile(self.life, file, self._directory.names.seen[name])

    async def create(self, name: str) -> DiskFile:
        """Create an empty file; its name is not durable until `sync_directory`."""
        self.life.pass_moment()
        file = await self._disk.create(name)
        recorded = RecordedBytes()
        self._directory.names.create(name, recorded)
        self.life.pass_moment()
        return RecordingFile(self.life, file, recorded)

    async def rename(self, name: str, to: str) -> None:
        """Rename; not durable until `sync_directory`."""
        self.life.pass_moment()
        await self._disk.rename(name, to)
        self._directory.names.rename(name, to)
        self.life.pass_moment()

    async def remove(self, name: str) -> None:
        """Remove; not durable until `sync_directory`."""
        self.life.pass_moment()
        await self._disk.remove(name)
        self._directory.names.remove(name)
        self.life.pass_moment()

    async def sync_directory(self) -> None:
        """Sync all names so far; afterwards they survive a power loss."""
        self.life.pass_moment()
        through = self._directory.names.changes_count
        await trio.sleep(self.life.sync_s)
        self._directory.names.sync(through)
        self.life.pass_moment()

    async def free_bytes(self) -> int:
        """Space left on the real disk."""
        self.life.check_there()
        return await self._disk.free_bytes()


@asynccontextmanager
async def open_recording_disk(
    directory: RecordedDirectory, life: ProcessLife
) -> AsyncIterator[RecordingDisk]:
    """Open the directory as a disk of one process."""
    async with directory.place.open_disk() as disk:
        assert set(await disk.list()) == set(directory.names.seen), "changed from outside"
        yield RecordingDisk(disk, directory, life)
