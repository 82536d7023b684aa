"""Damage to journal files, by file and extent, so that settled damage stays settled.

Damage is identified by its files and its extent: a checksum over where bytes are missing. The
same file, found again with the same bytes missing, has the same damage. A file found shorter,
with other gaps, or not at all has new damage, which nobody has settled.

Rules: PROTOCOL J12.
"""

import struct
from collections.abc import Iterable, Iterator

import attrs
from crc32c import crc32c

from regions.storage.protocol.intervals import IntervalSet

LOST = 0
"""Extent of missing files."""

_OFFSET = struct.Struct("<Q")
_GAP = struct.Struct("<QQ")


@attrs.frozen(order=True)
class Damage:
    """Loss in one journal file, or the loss of several."""

    first: int
    last: int
    extent: int
    """The missing bytes: `LOST`, or one of the extents below."""

    @classmethod
    def of_file(cls, file_id: int, extent: int) -> "Damage":
        """Damage of one file."""
        return cls(file_id, file_id, extent)


def unreadable_extent() -> int:
    """Extent when neither the header nor a table can be read."""
    return crc32c(b"unreadable")


def shortened_extent(size_bytes: int) -> int:
    """Extent when the file ends here, before the end that was synced."""
    return crc32c(b"shortened" + _OFFSET.pack(size_bytes))


def unproven_extent(mark_offset: int) -> int:
    """Extent when nothing says how much was synced after the last mark."""
    return crc32c(b"unproven" + _OFFSET.pack(mark_offset))


def gaps_extent(gaps: Iterable[tuple[int, int]]) -> int:
    """Extent when no record can be read between these offsets."""
    return crc32c(b"gaps" + b"".join(_GAP.pack(*gap) for gap in gaps))


class DamageSet:
    """Damage can be added, never taken away. Lost files are kept as merged intervals."""

    def __init__(self, damages: Iterable[Damage] = ()) -> None:
        self._files_of: dict[int, IntervalSet] = {}
        self.update(damages)

    def __repr__(self) -> str:
        return f"DamageSet({list(self)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DamageSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __iter__(self) -> Iterator[Damage]:
        """All of it, ordered by file."""
        return iter(
            sorted(
                Damage(first, last, extent)
                for extent, files in self._files_of.items()
                for first, last in files
            )
        )

    def __len__(self) -> int:
        return sum(files.intervals_count for files in self._files_of.values())

    @property
    def through(self) -> int:
        """The newest damaged file; 0 if there is none."""
        return max((damage.last for damage in self), default=0)

    def is_in(self, file_id: int) -> bool:
        """Whether this file is damaged."""
        return any(file_id in files for files in self._files_of.values())

    def files_with(self, extent: int) -> IntervalSet:
        """The files that are damaged to this extent."""
        return IntervalSet(self._files_of.get(extent, ()))

    def add(self, damage: Damage) -> None:
        """Add one damage."""
        files = self._files_of.setdefault(damage.extent, IntervalSet())
        files.add(damage.first, damage.last)

    def update(self, damages: Iterable[Damage]) -> None:
        """Add all of these."""
        for damage in damages:
            self.add(damage)

    def without(self, others: "DamageSet") -> "DamageSet":
        """The part that is not in `others` with the same file and the same extent."""
        return DamageSet(
            Damage(first, last, damage.extent)
            for damage in self
            for first, last in others.files_with(damage.extent).missing(
                damage.first, damage.last
            )
        )
