"""A file of a disk in memory: its current bytes, and the changes since its last sync."""

from collections.abc import Callable

import attrs

SECTOR_BYTES = 512
"""Unit that a disk writes completely or not at all."""


@attrs.frozen
class _Change:
    """One change of the current bytes, with the data to undo it."""

    start: int
    end: int
    """End of the bytes written; equal to `start` if there are none."""
    replaced: bytes
    """The previous bytes from `start`, as far as the change reached."""
    length_before: int

    def take_back(self, content: bytearray) -> None:
        del content[self.length_before :]
        if self.replaced:
            _put(content, self.start, self.replaced)


@attrs.define
class Inode:
    """A file's bytes as a process sees them; undoing changes gives those on the disk.

    Nearly all data on simulated disks is synced, so it is stored once. Both versions may be
    shorter than the file: allocated space behind them is zero.
    """

    seen: bytearray = attrs.field(factory=bytearray)
    seen_bytes: int = 0
    synced_bytes: int = 0
    _changes: list[_Change] = attrs.field(factory=list)
    """Changes since the last sync, in order."""
    _cut_bytes: int | None = None
    """Shortest length to which the file was cut since its last sync."""
    _unreadable: set[int] = attrs.field(factory=set)
    """Sectors that the disk cannot read until they are written again."""

    def make_unreadable(self, offset: int) -> None:
        """Make the sector of this byte unreadable."""
        self._unreadable.add(offset // SECTOR_BYTES)

    def is_readable(self, offset: int, length: int) -> bool:
        """Whether all sectors of these bytes are readable."""
        sectors = range(offset // SECTOR_BYTES, -(-(offset + length) // SECTOR_BYTES))
        return self._unreadable.isdisjoint(sectors) if self._unreadable else True

    @property
    def synced(self) -> bytearray:
        """A copy of the bytes on the disk."""
        content = bytearray(self.seen)
        for change in reversed(self._changes):
            change.take_back(content)
        return content

    def write(self, offset: int, written: bytes) -> None:
        """Write; the bytes are on the disk after `sync`, or earlier."""
        end = offset + len(written)
        replaced = bytes(self.seen[offset:end])
        self._changes.append(_Change(offset, end, replaced, len(self.seen)))
        _put(self.seen, offset, written)
        self.seen_bytes = max(self.seen_bytes, len(self.seen))
        if self._unreadable:
            whole = range(-(-offset // SECTOR_BYTES), end // SECTOR_BYTES)
            self._unreadable.difference_update(whole)

    def read(self, offset: int, length: int) -> bytes:
        """Read; shorter only at the end of the file."""
        length = max(0, min(length, self.seen_bytes - offset))
        return bytes(self.seen[offset : offset + length]).ljust(length, b"\0")

    def truncate(self, length: int) -> None:
        """Cut or extend the file."""
        replaced = bytes(self.seen[length:])
        self._changes.append(_Change(length, length, replaced, len(self.seen)))
        del self.seen[length:]
        self.seen_bytes = length
        self._cut_bytes = length if self._cut_bytes is None else min(self._cut_bytes, length)

    def sync(self) -> None:
        """Put the current bytes on the disk."""
        self._changes.clear()
        self._cut_bytes = None
        self.synced_bytes = self.seen_bytes

    def after_power_loss(self, keeps: Callable[[], bool]) -> "Inode":
        """The remaining file; `keeps` decides for each unsynced sector whether it survives."""
        left, length = self.synced, self.synced_bytes
        if self.seen_bytes != length and keeps():
            del left[self.seen_bytes if self._cut_bytes is None else self._cut_bytes :]
            length = self.seen_bytes
        for change in self._changes:
            if change.start == change.end:
                continue
            first_sector = change.start - change.start % SECTOR_BYTES
            for sector in range(first_sector, change.end, SECTOR_BYTES):
                if keeps():
                    _put(left, sector, self.seen[sector : sector + SECTOR_BYTES])
        length = max(length, len(left))
        return Inode(left, length, length, unreadable=set(self._unreadable))

    def as_seen(self) -> "Inode":
        """A copy for the next process; unsynced bytes are still in the page cache."""
        return Inode(
            bytearray(self.seen),
            self.seen_bytes,
            self.synced_bytes,
            list(self._changes),
            self._cut_bytes,
            set(self._unreadable),
        )

    def is_synced(self, start: int, end: int) -> bool:
        """Whether these bytes survive any power loss."""
        return end <= self.synced_bytes and not any(
            change.start < min(end, change.end) and start < change.end
            for change in self._changes
        )

    def replace(self, content: bytes) -> None:
        """Replace the content, also on the disk."""
        self.seen = bytearray(content)
        self.seen_bytes = len(content)
        self.sync()

    def spoil(self, offset: int, content: bytes) -> None:
        """Change bytes, also on the disk."""
        if self._changes:
            synced = self.synced
            _put(synced, offset, content)
            # It is undone last, so it restores exactly these bytes.
            self._changes.insert(0, _Change(0, 0, bytes(synced), len(synced)))
        _put(self.seen, offset, content)


def _put(content: bytearray, offset: int, written: bytes | bytearray) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(written)] = written
