"""The records that readers of a cursor are done with."""

from collections import defaultdict

import attrs

from geolog.client.reading.record import Gap, Record


@attrs.define(eq=False)
class CursorHistory:
    """By partition, the sequences that some reader was done with."""

    done: defaultdict[int, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    repeated_count: int = 0
    """Records that were delivered again."""

    def on_done(self, item: Record | Gap) -> None:
        """A reader is done with a record, or knows of a gap."""
        done = self.done[item.partition]
        if isinstance(item, Record):
            self.repeated_count += item.sequence in done
            done.add(item.sequence)
        else:
            done.update(range(item.from_sequence or 0, item.to_sequence))
