"""The names in a directory: those certainly on disk, and the later changes that may not be.

Until the directory is synced, a file system may put its changes on disk in any order. So after
a power loss each of them may be there or not, a later one even without an earlier one.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import attrs

F = TypeVar("F")


@attrs.frozen
class _Change(Generic[F]):
    """A creation, a rename or a removal."""

    gone: str | None
    """The name that it takes away."""
    name: str | None
    """The name that it gives, to `file`."""
    file: F | None

    def apply(self, names: dict[str, F]) -> None:
        if self.gone is not None and (self.file is None or names.get(self.gone) is self.file):
            names.pop(self.gone, None)
        if self.name is not None and self.file is not None:
            names[self.name] = self.file


class DirectoryNames(Generic[F]):
    """The names as processes see them, and as they are on disk. Files compare by identity."""

    def __init__(self, files: dict[str, F]) -> None:
        """Count these as synced."""
        self.seen = dict(files)
        self._synced = dict(files)
        self._unsynced: list[_Change[F]] = []
        self._synced_count = 0

    @property
    def changes_count(self) -> int:
        """Number of changes so far, synced or not."""
        return self._synced_count + len(self._unsynced)

    @property
    def unsynced_count(self) -> int:
        """Number of changes that a power loss may undo."""
        return len(self._unsynced)

    def create(self, name: str, file: F) -> None:
        """Give the file its first name."""
        self._change(_Change(None, name, file))

    def rename(self, name: str, to: str) -> None:
        """Rename, replacing any file with the new name."""
        self._change(_Change(name, to, self.seen[name]))

    def remove(self, name: str) -> None:
        """Remove the name."""
        self._change(_Change(name, None, None))

    def sync(self, through: int) -> None:
        """Put the changes up to this number on disk, unless they are there."""
        for _ in range(through - self._synced_count):
            self._unsynced.pop(0).apply(self._synced)
            self._synced_count += 1

    def is_synced(self, name: str, file: F) -> bool:
        """Whether the name denotes this file on disk."""
        return self._synced.get(name) is file

    def after_power_loss(self, kept: Iterable[bool]) -> dict[str, F]:
        """The names left if these of the unsynced changes survive."""
        names = dict(self._synced)
        for change, is_kept in zip(self._unsynced, kept, strict=True):
            if is_kept:
                change.apply(names)
        return names

    def copied(self, copy: Callable[[F], F]) -> "DirectoryNames[F]":
        """The same names, of copies of the files."""
        files = [*self.seen.values(), *self._synced.values()]
        files += [each.file for each in self._unsynced if each.file is not None]
        copies = {id(file): copy(file) for file in {id(each): each for each in files}.values()}
        found = DirectoryNames({name: copies[id(file)] for name, file in self.seen.items()})
        found._synced = {name: copies[id(file)] for name, file in self._synced.items()}
        found._unsynced = [
            each if each.file is None else attrs.evolve(each, file=copies[id(each.file)])
            for each in self._unsynced
        ]
        return found

    def _change(self, change: _Change[F]) -> None:
        change.apply(self.seen)
        self._unsynced.append(change)
