"""The records that readers of a cursor are done with."""

from collections import defaultdict

import attrs

from geolog.client.reading.record import Gap, GapReason, Record

_FIRST_EPOCH = 1


@attrs.define(eq=False)
class CursorHistory:
    """By partition, what some reader was done with."""

    delivered: defaultdict[int, set[tuple[int, int]]] = attrs.field(
        factory=lambda: defaultdict(set)
    )
    """Home epochs and sequences of records: after a fork a sequence names another record."""
    skipped: defaultdict[int, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    """Sequences that a reader was told are gone."""
    repeated_count: int = 0
    """Records that were delivered again."""

    def on_done(self, item: Record | Gap) -> None:
        """A reader is done with a record, or knows of a gap."""
        if isinstance(item, Record):
            delivered = self.delivered[item.partition]
            place = _place(item.epoch, item.sequence)
            self.repeated_count += place in delivered
            delivered.add(place)
        elif item.reason is not GapReason.DIVERGED:  # Records of the new home come behind it.
            self.skipped[item.partition].update(
                range(item.from_sequence or 0, item.to_sequence)
            )

    def is_done(self, partition: int, home_epoch: int, sequence: int) -> bool:
        """Whether a reader was done with the record of that home epoch at that sequence."""
        is_delivered = _place(home_epoch, sequence) in self.delivered[partition]
        return is_delivered or sequence in self.skipped[partition]


def _place(home_epoch: int, sequence: int) -> tuple[int, int]:
    return max(home_epoch, _FIRST_EPOCH), sequence
