"""Small home logs for the tests of relays: segments, control entries, several batches."""

from itertools import count

import attrs

from geolog.partition.mirror_entry import SegmentBegin
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark
from geolog.wire.batch import seal_batch
from geolog.wire.entry import EntryKind, encode_entry
from relay.protocol.bridge_messages import RelayedEntry
from relay.wire.bridge import watermark_of


@attrs.define
class HomeLog:
    """A home's log: all of its entries, in order. `append` and `roll` make more."""

    home_epoch: int = 1
    entries: list[RelayedEntry] = attrs.field(factory=list)
    segment: int = 1
    entry_next: int = 0
    _numbers: "count[int]" = attrs.field(factory=count)

    @property
    def end(self) -> Watermark | None:
        return self.entries[-1].watermark if self.entries else None

    def append(self, records: int = 1, *, payload: bytes = b"v") -> RelayedEntry:
        """Append records; 0 stands for a control entry."""
        end = self.end
        first_sequence = 0 if end is None else end.sequence_next
        kind = EntryKind.DATA if records else EntryKind.CONTROL
        values = [payload + b"%d" % next(self._numbers) for _ in range(max(1, records))]
        encoded = encode_entry(
            [seal_batch(values, created_us=1, compress=False)],
            home_epoch=self.home_epoch,
            segment=self.segment,
            entry=self.entry_next,
            first_sequence=first_sequence,
            append_time_us=1_000 + len(self.entries),
            kind=kind,
        )
        begin = None
        if self.entry_next == 0:
            begin = SegmentBegin(
                first_sequence=Sequence(first_sequence),
                append_time_us_before=0,
                transaction_id_before=None,
                size_bytes_before=0,
            )
        watermark = watermark_of(encoded.header, encoded.buffers[0])
        entry = RelayedEntry(watermark, end, begin, encoded)
        self.entries.append(entry)
        self.entry_next += 1
        return entry

    def roll(self, *, skipped: int = 0) -> None:
        """Go on in a later segment; `skipped` numbers were activated, and stayed empty."""
        if self.entry_next:
            self.segment += 1 + skipped
            self.entry_next = 0

    def watermarks(self) -> list[Watermark]:
        return [one.watermark for one in self.entries]


def marked(segment: int, entry: int, *, crc: int = 1, sequence: int = 0) -> Watermark:
    """A watermark of home epoch 1."""
    return Watermark(1, segment, SegmentEntry(entry), crc, Sequence(sequence))


def home_log(shape: str) -> HomeLog:
    """A log from a text: `3` an entry of three records, `c` a control entry, `|` a roll."""
    log = HomeLog()
    for sign in shape:
        if sign == "|":
            log.roll()
        else:
            log.append(0 if sign == "c" else int(sign))
    return log
