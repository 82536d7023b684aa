"""A file's bytes as far as they are surely on the disk, and the steps since that may not be.

A disk writes sectors whole or not at all, and until a sync in any order: so after power loss
each sector stands as it was after some step since the last sync, and the file has the length
that it had after some step. What was synced is there.
"""

from random import Random

import attrs

SECTOR_BYTES = 512


@attrs.frozen
class _Written:
    """A write: where, and what."""

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
    """The file was cut, or grew by an allocation, to this length."""

    length: int

    def apply(self, content: bytearray) -> None:
        del content[self.length :]
        _extend(content, self.length)

    def sectors(self) -> range:
        return range(0)


@attrs.define(eq=False)
class RecordedBytes:
    """One file. `eq=False`: a name stands for this very file, whatever its bytes."""

    synced: bytearray = attrs.field(factory=bytearray)
    _steps: list[_Written | _Sized] = attrs.field(factory=list)
    _length: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._length = len(self.synced)

    @property
    def is_synced(self) -> bool:
        """Whether nothing of it can be lost."""
        return not self._steps

    def write(self, offset: int, content: bytes) -> None:
        """A write that is not synced."""
        self._steps.append(_Written(offset, content))
        self._length = max(self._length, offset + len(content))

    def grow(self, length: int) -> None:
        """An allocation: at least this long, zeros behind what was there."""
        if length > self._length:
            self.cut(length)

    def cut(self, length: int) -> None:
        """A truncation, or a growth by zeros."""
        self._steps.append(_Sized(length))
        self._length = length

    def sync(self) -> None:
        """All steps so far are on the disk."""
        for step in self._steps:
            step.apply(self.synced)
        self._steps.clear()

    def after_power_loss(self, rng: Random, keep_share: float) -> bytes:
        """What is found; `keep_share` is about how much of what was not synced is there."""
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
        # A sector behind the end that the disk knows of is not part of the file.
        del left[length:]
        _extend(left, length)
        return bytes(left)


def _extend(content: bytearray, length: int) -> None:
    if len(content) < length:
        content.extend(bytes(length - len(content)))
