"""Where entries of the multicast belong in a partition's buffer.

Theory of operation. An owner sends acknowledged entries without saying what came before: its
segment and number say that. An entry whose number follows that of the buffer's last one, in the
same segment, belongs behind it. One that comes earlier is kept a while: the reader of the log
brings what is between. The first entry of a segment is left to that reader, who knows from
metadata where the segment before it ended. Repeats are dropped.

Only the place counts, and the sequence must fit. If an owner sent something else than it wrote,
the reader of the log finds another checksum there.

Invariants: what is placed is right behind the buffer's last entry; at most `waiting_max`
entries and `waiting_bytes_max` bytes wait, or one larger entry.

Rules: PROTOCOL T5.
"""

import enum

import attrs

from geolog.protocol.ids import Sequence
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry
from relay.protocol.bridge_messages import RelayedEntry


class Offered(enum.Enum):
    """The outcome of an entry of the multicast."""

    KEPT = "kept"
    """It may be placed now, or after others: see `next_after`."""
    REPEATED = "repeated"
    REFUSED = "refused"
    """It cannot be placed: it is the first of a segment, or does not fit."""


@attrs.frozen(kw_only=True)
class PlacingBounds:
    """Bounds of the entries of one partition that wait for those before them."""

    waiting_max: int = 1024
    """Entries; above it the oldest are refused."""

    waiting_bytes_max: int = 4 << 20
    """Bytes; above it the oldest are refused."""


class MulticastPlacing:
    """One partition's entries of the multicast that are not in its buffer yet."""

    def __init__(self, bounds: PlacingBounds | None = None) -> None:
        self._bounds = bounds or PlacingBounds()
        self._waiting: dict[tuple[int, int], EncodedEntry] = {}
        self._waiting_bytes = 0
        self.refused_count = 0
        self.repeated_count = 0

    def __repr__(self) -> str:
        return f"MulticastPlacing({len(self._waiting)} wait)"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the entries that wait."""
        return self._waiting_bytes

    def on_entry(self, encoded: EncodedEntry, end: Watermark | None) -> Offered:
        """An entry came; `end` is the buffer's last one."""
        header = encoded.header
        place = header.segment, header.entry
        if place in self._waiting or (end is not None and place <= (end.segment, end.entry)):
            self.repeated_count += 1
            return Offered.REPEATED
        if header.entry == 0:
            self.refused_count += 1
            return Offered.REFUSED
        self._waiting[place] = encoded
        self._waiting_bytes += encoded.length_bytes
        while self._is_over():
            self.refuse_oldest()
        return Offered.KEPT if place in self._waiting else Offered.REFUSED

    def refuse_oldest(self) -> None:
        """Let the reader of the log bring the entry that has waited longest."""
        self._drop(next(iter(self._waiting)))
        self.refused_count += 1

    def clear(self) -> None:
        """Forget the entries that wait."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def next_after(self, end: Watermark | None) -> RelayedEntry | None:
        """The entry that belongs right behind the buffer's last one, if it has come."""
        if end is None:
            return None
        encoded = self._waiting.get((end.segment, end.entry + 1))
        if encoded is None:
            return None
        self._drop((end.segment, end.entry + 1))
        header = encoded.header
        if (header.home_epoch, header.first_sequence) != (end.home_epoch, end.sequence_next):
            self.refused_count += 1
            return None
        watermark = Watermark(
            header.home_epoch,
            header.segment,
            header.entry,
            encoded.header_crc,
            Sequence(header.next_sequence),
        )
        return RelayedEntry(watermark, end, None, encoded.as_relayed())

    def on_read(self, end: Watermark) -> None:
        """The reader of the log is here: entries up to this place need not wait."""
        if not self._waiting:
            return
        for place in [one for one in self._waiting if one <= (end.segment, end.entry)]:
            self._drop(place)
            self.repeated_count += 1

    def _is_over(self) -> bool:
        bounds = self._bounds
        is_over_bytes = self._waiting_bytes > bounds.waiting_bytes_max
        return len(self._waiting) > bounds.waiting_max or (
            is_over_bytes and len(self._waiting) > 1
        )

    def _drop(self, place: tuple[int, int]) -> None:
        self._waiting_bytes -= self._waiting.pop(place).length_bytes
