"""Disks that wrap a node's own disk and break the seam's promises, as planted bugs."""

from collections.abc import Sequence

import attrs

from regions.storage.disk import Disk, DiskFile, FilePieces, Piece
from sim.fakes.begun_writes import BegunWrites

Buffers = Sequence[bytes | bytearray | memoryview]


@attrs.frozen
class FileAsItIs(BegunWrites):
    """A file that forwards every call."""

    file: DiskFile

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        await self.file.write_synced(offset, buffers)

    async def write(self, offset: int, buffers: Buffers) -> None:
        await self.file.write(offset, buffers)

    async def allocate(self, offset: int, length: int) -> None:
        await self.file.allocate(offset, length)

    async def truncate(self, length: int) -> None:
        await self.file.truncate(length)

    async def read(self, offset: int, length: int) -> bytes:
        return await self.file.read(offset, length)

    async def read_many(
        self,
        pieces: Sequence[Piece],
        *,
        soon: Sequence[FilePieces] = (),
    ) -> list[bytes]:
        return [await self.read(offset, length) for offset, length in pieces]

    async def forget_cached(self, pieces: Sequence[Piece]) -> None:
        await self.file.forget_cached(pieces)

    def rest(self) -> None:
        self.file.rest()

    async def close(self) -> None:
        await self.file.close()


@attrs.frozen
class DiskAsItIs:
    """A disk that forwards every call."""

    disk: Disk

    def file(self, file: DiskFile) -> DiskFile:
        return file

    async def list(self) -> list[str]:
        return await self.disk.list()

    async def open(self, name: str) -> DiskFile:
        return self.file(await self.disk.open(name))

    async def create(self, name: str) -> DiskFile:
        return self.file(await self.disk.create(name))

    async def rename(self, name: str, to: str) -> None:
        await self.disk.rename(name, to)

    async def remove(self, name: str) -> None:
        await self.disk.remove(name)

    async def sync_directory(self) -> None:
        await self.disk.sync_directory()

    async def free_bytes(self) -> int:
        return await self.disk.free_bytes()


class NeverSyncedFile(FileAsItIs):
    """Claims that bytes are on disk as soon as they are written."""

    async def write_synced(self, offset: int, buffers: Buffers) -> None:
        await self.file.write(offset, buffers)


class NeverSyncedDisk(DiskAsItIs):
    """Planted bug 13: bytes in the page cache are acknowledged."""

    def file(self, file: DiskFile) -> DiskFile:
        return NeverSyncedFile(file) if file.name.endswith((".journal", ".new")) else file


class ForgetfulDirectory(DiskAsItIs):
    """Planted bug 15: a new journal file is used before its name is on disk."""

    async def rename(self, name: str, to: str) -> None:
        await self.disk.rename(name, to)
        if not to.endswith(".journal"):
            await self.disk.sync_directory()

    async def sync_directory(self) -> None:
        await self.disk.list()
