"""A file's bytes that are certainly on the disk, and the later steps that may not be.

A disk writes each sector completely or not at all, and in any order until a sync. So after a
power loss each sector is in its state after some step since the last sync, and the file has its
length after some step. Synced data is there.
"""

from random import Random

import attrs

SECTOR_BYTES = 512


@attrs.frozen
class _Written:
    """A write."""

    offset: int
    content: bytes

    def apply(self, content: bytearray) -> None:
        _extend(content, self.offset)
        content[self.offset : self.offset + len(self.content)] = self.content

    def sectors(self) -> range:
        first = self.offset - self.offset % SECTOR_BYTES
        return range(first, self.offset + len(self.content), SECTOR_BYTES)


@attrs.frozen
class _Sized:
    """A cut to this length, or a growth to it by an allocation."""

    length: int

    def apply(self, content: bytearray) -> None:
        del content[self.length :]
        _extend(content, self.length)

    def sectors(self) -> range:
        return range(0)


@attrs.define(eq=False)
class RecordedBytes:
    """One file. `eq=False`, because a name denotes one particular file, whatever its bytes."""

    synced: bytearray = attrs.field(factory=bytearray)
    _steps: list[_Written | _Sized] = attrs.field(factory=list)
    _length: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._length = len(self.synced)

    @property
    def is_synced(self) -> bool:
        """Whether none of it can be lost."""
        return not self._steps

    def write(self, offset: int, content: bytes) -> None:
        """Note an unsynced write."""
        self._steps.append(_Written(offset, content))
        self._length = max(self._length, offset + len(content))

    def grow(self, length: int) -> None:
        """Note an allocation: the file is at least this long, extended by zeros."""
        if length > self._length:
            self.cut(length)

    def cut(self, length: int) -> None:
        """Note a truncation, or a growth by zeros."""
        self._steps.append(_Sized(length))
        self._length = length

    def sync(self) -> None:
        """Note that all steps so far are on the disk."""
        for step in self._steps:
            step.apply(self.synced)
        self._steps.clear()

    def after_power_loss(self, rng: Random, keep_share: float) -> bytes:
        """The remaining content; about `keep_share` of the unsynced data survives."""
        left, seen = bytearray(self.synced), bytearray(self.synced)
        length = len(left)
        versions: dict[int, list[bytes]] = {}
        for step in self._steps:
            step.apply(seen)
            for sector in step.sectors():
                versions.setdefault(sector, []).append(
                    bytes(seen[sector : sector + SECTOR_BYTES])
                )
            if rng.random() < keep_share:
                length = len(seen)
        for sector, contents in versions.items():
            if rng.random() < keep_share:
                content = contents[-1] if rng.random() < 0.5 else rng.choice(contents)
                _extend(left, sector)
                left[sector : sector + len(content)] = content
        # Sectors behind the file's end as recorded on disk are not part of the file.
        del left[length:]
        _extend(left, length)
        return bytes(left)


def _extend(content: bytearray, length: int) -> None:
    if len(content) < length:
        content.extend(bytes(length - len(content)))
