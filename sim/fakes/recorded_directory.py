"""A directory with a record of what is on disk for certain, on real files or in memory.

Theory of operation. The record holds the synced bytes of each file and the later steps
(`RecordedBytes`), and the names created, renamed or removed since the directory was synced. It
outlives the processes that use the directory. The bytes that processes see are at a *place*: on
a real disk, or in memory, where a history is fast and repeats exactly. Each power loss moves
what is left to a new place.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Protocol

import attrs
import trio

from regions.storage.disk import Disk
from regions.storage.file_disk import open_file_disk
from sim.fakes.directory_names import DirectoryNames
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.recorded_bytes import RecordedBytes


class DirectoryPlace(Protocol):
    """Holds the files of a directory."""

    def contents(self) -> dict[str, bytes]:
        """The bytes of each file."""
        ...

    def open_disk(self) -> AbstractAsyncContextManager[Disk]:
        """Open it for one process. Its own power losses are not used."""
        ...

    def next(self, contents: Mapping[str, bytes]) -> "DirectoryPlace":
        """A new place with these files."""
        ...


@attrs.frozen
class RealDirectoryPlace:
    """A directory of real files, in `parent`."""

    parent: Path
    number: int
    losses_count: int = 0

    @property
    def path(self) -> Path:
        """The directory."""
        return self.parent / f"{self.losses_count}-{self.number}"

    def contents(self) -> dict[str, bytes]:
        """Read all files."""
        self.path.mkdir(parents=True, exist_ok=True)
        return {each.name: each.read_bytes() for each in self.path.iterdir()}

    def open_disk(self) -> AbstractAsyncContextManager[Disk]:
        """Open it as a real data directory."""
        return open_file_disk(self.path)

    def next(self, contents: Mapping[str, bytes]) -> "RealDirectoryPlace":
        """A new directory next to this one."""
        place = attrs.evolve(self, losses_count=self.losses_count + 1)
        place.path.mkdir(parents=True)
        for name, content in contents.items():
            (place.path / name).write_bytes(content)
        return place


@attrs.frozen
class MemoryDirectoryPlace:
    """A disk in memory."""

    disk: MemoryDisk = attrs.field(factory=MemoryDisk)

    def contents(self) -> dict[str, bytes]:
        """Copy all files."""
        return {name: self.disk.content(name) for name in self.disk.names}

    @asynccontextmanager
    async def open_disk(self) -> AsyncIterator[Disk]:
        """Open it as it is."""
        await trio.lowlevel.checkpoint()
        yield self.disk

    def next(self, contents: Mapping[str, bytes]) -> "MemoryDirectoryPlace":
        """A new disk of the same name."""
        return MemoryDirectoryPlace(MemoryDisk.holding(contents, name=self.disk.name))


class RecordedDirectory:
    """The directory at a place; its initial content counts as synced."""

    def __init__(self, place: DirectoryPlace) -> None:
        self.place = place
        self.names = DirectoryNames(
            {
                name: RecordedBytes(bytearray(content))
                for name, content in place.contents().items()
            }
        )

    def __repr__(self) -> str:
        return f"RecordedDirectory({self.place!r}, {len(self.names.seen)} files)"

    def after_power_loss(self, rng: Random) -> "RecordedDirectory":
        """A new directory with the data that survives on disk. This one stays as it is."""
        keep_share = rng.choice((0.0, 0.5, 0.5, 0.9, 1.0))
        kept = [rng.random() < keep_share for _ in range(self.names.unsynced_count)]
        left = {
            name: file.after_power_loss(rng, keep_share)
            for name, file in self.names.after_power_loss(kept).items()
        }
        return RecordedDirectory(self.place.next(left))
