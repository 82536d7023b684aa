"""A file of a disk in memory: its bytes as seen, and what took their place since its sync."""

from collections.abc import Callable

import attrs

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


@attrs.frozen
class _Change:
    """One change of the bytes that are seen, and what takes it back."""

    start: int
    end: int
    """Up to where bytes were written; `start` where none were."""
    replaced: bytes
    """What lay from `start` on, as far as the change went."""
    length_before: int

    def take_back(self, content: bytearray) -> None:
        del content[self.length_before :]
        if self.replaced:
            _put(content, self.start, self.replaced)


@attrs.define
class Inode:
    """A file's bytes as a process sees them; those on the disk are got by going back.

    Nearly all that simulated disks hold is synced, so it is kept once. Both may be shorter than
    the file: what was allocated behind them is zero.
    """

    seen: bytearray = attrs.field(factory=bytearray)
    seen_bytes: int = 0
    synced_bytes: int = 0
    _changes: list[_Change] = attrs.field(factory=list)
    """Since the last sync, in their order."""
    _cut_bytes: int | None = None
    """The shortest that the file was cut to since it was synced."""
    _unreadable: set[int] = attrs.field(factory=set)
    """Numbers of sectors that the disk cannot read; a sector that is written again can be."""

    def make_unreadable(self, offset: int) -> None:
        """Let the sector of this byte not be read any more."""
        self._unreadable.add(offset // SECTOR_BYTES)

    def is_readable(self, offset: int, length: int) -> bool:
        """Whether none of these bytes lies in a sector that cannot be read."""
        sectors = range(offset // SECTOR_BYTES, -(-(offset + length) // SECTOR_BYTES))
        return self._unreadable.isdisjoint(sectors) if self._unreadable else True

    @property
    def synced(self) -> bytearray:
        """The bytes as they are on the disk: a copy."""
        content = bytearray(self.seen)
        for change in reversed(self._changes):
            change.take_back(content)
        return content

    def write(self, offset: int, written: bytes) -> None:
        """Write; it is on the disk after `sync`, and may be there before."""
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
        """Cut the file, or let it be longer."""
        replaced = bytes(self.seen[length:])
        self._changes.append(_Change(length, length, replaced, len(self.seen)))
        del self.seen[length:]
        self.seen_bytes = length
        self._cut_bytes = length if self._cut_bytes is None else min(self._cut_bytes, length)

    def sync(self) -> None:
        """Let what is seen be on the disk."""
        self._changes.clear()
        self._cut_bytes = None
        self.synced_bytes = self.seen_bytes

    def after_power_loss(self, keeps: Callable[[], bool]) -> "Inode":
        """What is left: each sector that was not synced may have reached the disk, or not."""
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
        """The same for another process: what is not synced is in the machine's memory."""
        return Inode(
            bytearray(self.seen),
            self.seen_bytes,
            self.synced_bytes,
            list(self._changes),
            self._cut_bytes,
            set(self._unreadable),
        )

    def is_synced(self, start: int, end: int) -> bool:
        """Whether these bytes would be there after power loss, whatever else is lost."""
        return end <= self.synced_bytes and not any(
            change.start < min(end, change.end) and start < change.end
            for change in self._changes
        )

    def replace(self, content: bytes) -> None:
        """Let the file hold this, also on the disk."""
        self.seen = bytearray(content)
        self.seen_bytes = len(content)
        self.sync()

    def spoil(self, offset: int, content: bytes) -> None:
        """Change bytes, also on the disk."""
        if self._changes:
            synced = self.synced
            _put(synced, offset, content)
            # The last to be taken back, it leaves exactly this.
            self._changes.insert(0, _Change(0, 0, bytes(synced), len(synced)))
        _put(self.seen, offset, content)


def _put(content: bytearray, offset: int, written: bytes | bytearray) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(written)] = written
