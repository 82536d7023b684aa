"""The last entries of one partition's log, in memory: what a successor replays from.

Theory of operation. The members that buffer, and the coordinator too, keep one contiguous run
of entries: each is right behind the one before it, by place. An entry that is not (the
multicast lost some, or a recovery acknowledged them) is refused, and the keeper reads what is
missing from the log. Three bounds drop entries from the front, whichever is reached first:
a number, bytes, an age. So does `trim`, with what every target has made durable.

A channel asks for the entry behind its position. The buffer has it, or the channel is at
the end, or the buffer begins above it and the channel reads the log. Nothing is ever skipped:
an answer is given only where the place, checksum included, is known.

Invariants: entries are contiguous; `bytes_count` is the sum of their lengths, and at most one
entry is above the bound of bytes.

Rules: PROTOCOL B5 and B6.
"""

import enum
from collections import deque

import attrs

from geolog.protocol.watermark import Watermark
from relay.protocol.bridge_messages import RelayedEntry


@attrs.frozen(kw_only=True)
class BufferBounds:
    """Bounds of one partition's buffer; at each, its oldest entries are dropped."""

    entries_max: int = 100_000
    """Number of entries."""

    bytes_max: int = 16 << 20
    """Bytes of entries; one larger entry is kept alone."""

    age_s_max: float = 60.0
    """How long an entry is kept after it came."""


class Taken(enum.Enum):
    """The outcome of offering an entry to a buffer."""

    NEW = "new"
    REPEATED = "repeated"
    MISSING_BEFORE = "missing before"
    """It is not right behind the last one: what is between must be read from the log."""
    DIFFERENT = "different"
    """Another entry stands at this place: one of the two is not of this log."""


@attrs.frozen
class BufferCoverage:
    """The range of a buffer: everything behind `begin`, up to `end`."""

    begin: Watermark | None
    end: Watermark | None
    entries_count: int
    bytes_count: int


@attrs.define(eq=False)
class _Kept:
    entry: RelayedEntry
    since_s: float
    end_bytes: int
    """Bytes of all entries that the buffer has had, up to this one."""
    next: "_Kept | None" = attrs.field(default=None, repr=False)


_Place = tuple[int, int, int]


def _place(watermark: Watermark) -> _Place:
    return watermark.home_epoch, watermark.segment, watermark.entry


class StandbyBuffer:
    """One partition's last entries. It begins behind a place, empty: `begin`."""

    def __init__(
        self, begin: Watermark | None, bounds: BufferBounds, *, has_begun: bool = True
    ) -> None:
        """has_begun: False if its beginning is not known yet: then it covers nothing."""
        self._bounds = bounds
        self._has_begun = has_begun
        self._begin = begin
        """The place before the first entry; None if that is the first of the log."""
        self._kept: deque[_Kept] = deque()
        self._by_place: dict[_Place, _Kept] = {}
        self._bytes_count = 0
        self._end_bytes = 0  # Bytes of all entries that it has had.
        self.repeated_count = 0

    def __repr__(self) -> str:
        return f"StandbyBuffer({len(self)} entries behind {self._begin}, {self._bytes_count} B)"

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bounds(self) -> BufferBounds:
        """Its bounds."""
        return self._bounds

    @property
    def has_begun(self) -> bool:
        """Whether the place is known behind which it has everything."""
        return self._has_begun

    @property
    def begin(self) -> Watermark | None:
        """The place behind which the buffer has everything; None if that is the whole log."""
        return self._begin

    @property
    def end(self) -> Watermark | None:
        """The place of the last entry that it has had."""
        return self._kept[-1].entry.watermark if self._kept else self._begin

    @property
    def bytes_count(self) -> int:
        """Bytes of the entries in it."""
        return self._bytes_count

    @property
    def coverage(self) -> BufferCoverage:
        """The range that it holds now."""
        return BufferCoverage(self._begin, self.end, len(self), self._bytes_count)

    def begin_behind(self, position: Watermark | None) -> None:
        """Begin elsewhere; nothing was pushed yet."""
        assert not self._kept, f"{self!r} has begun"
        self._begin = position
        self._has_begun = True

    def push(self, entry: RelayedEntry, *, now_s: float) -> Taken:
        """Take the next entry; anything else is told, and not taken."""
        assert self._has_begun, f"{self!r} has not begun"
        end = self.end
        if end is not None and entry.watermark <= end:
            return self._compared(entry)
        if entry.previous != end:
            return Taken.MISSING_BEFORE
        self._end_bytes += entry.length_bytes
        kept = _Kept(entry, now_s, self._end_bytes)
        if self._kept:
            self._kept[-1].next = kept
        self._kept.append(kept)
        self._by_place[_place(entry.watermark)] = kept
        self._bytes_count += entry.length_bytes
        self.expire(now_s=now_s)
        return Taken.NEW

    def _compared(self, entry: RelayedEntry) -> Taken:
        found = entry.watermark
        kept = self._by_place.get(_place(found))
        known = self._begin if kept is None else kept.entry.watermark
        if known is not None and _place(known) == _place(found) and known != found:
            return Taken.DIFFERENT
        self.repeated_count += 1
        return Taken.REPEATED

    def expire(self, *, now_s: float) -> None:
        """Drop what is over the bounds."""
        bounds = self._bounds
        while self._kept and (
            len(self._kept) > bounds.entries_max
            or (self._bytes_count > bounds.bytes_max and len(self._kept) > 1)
            or self._kept[0].since_s < now_s - bounds.age_s_max
        ):
            self.drop_oldest()

    def trim(self, durable: Watermark) -> None:
        """Drop what every target has durably: everything up to this place."""
        while self._kept and self._kept[0].entry.watermark <= durable:
            self.drop_oldest()

    def clear(self) -> None:
        """Forget everything: it has not begun."""
        self._kept.clear()
        self._by_place.clear()
        self._bytes_count = 0
        self._begin = None
        self._has_begun = False

    def drop_oldest(self) -> None:
        """Drop the first entry."""
        dropped = self._kept.popleft().entry
        del self._by_place[_place(dropped.watermark)]
        self._begin = dropped.watermark
        self._bytes_count -= dropped.length_bytes

    def covers(self, position: Watermark | None) -> bool:
        """Whether it has everything behind this position."""
        return self._has_begun and (
            position == self._begin or self._kept_at(position) is not None
        )

    def bytes_behind(self, position: Watermark | None) -> int:
        """Bytes of the entries behind this position; of all if it does not cover it."""
        kept = self._kept_at(position)
        return self._bytes_count if kept is None else self._end_bytes - kept.end_bytes

    def after(self, position: Watermark | None) -> RelayedEntry | None:
        """The entry behind this position; None at the end, or if it is not covered."""
        if position == self._begin and self._has_begun:
            return self._kept[0].entry if self._kept else None
        kept = self._kept_at(position)
        return kept.next.entry if kept is not None and kept.next is not None else None

    def _kept_at(self, position: Watermark | None) -> _Kept | None:
        kept = None if position is None else self._by_place.get(_place(position))
        return kept if kept is not None and kept.entry.watermark == position else None
