"""Law 27: only the reader that has a partition commits, forwards, and what it is done with."""

from collections.abc import Iterator

import attrs

from geolog.protocol.cursor_state import NO_READER, PartitionStanding
from sim.laws.state.seen import CursorLook, Look


@attrs.define
class CommitsInOrder:
    """Keeps the cursor as seen last, and how far its commits were compared with deliveries."""

    _before: CursorLook | None = None
    _checked_to: dict[int, int] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the records of the cursor's partitions with those seen last."""
        if now.cursor is None:
            return
        for partition, standing in sorted(now.cursor.standings.items()):
            if self._before is not None and partition in self._before.standings:
                before = self._before.standings[partition]
                yield from _wrong_step(partition, before, standing, self._before, now.cursor)
            yield from self._undelivered(now, partition, standing)
        self._before = now.cursor

    def _undelivered(
        self, now: Look, partition: int, standing: PartitionStanding
    ) -> Iterator[str]:
        """Sequences before the position that no reader was done with."""
        position = standing.record.position
        if position is None:
            return
        done = now.history.cursor.done[partition]
        trim = now.trims[partition].first_sequence if partition in now.trims else 0
        first = max(trim, self._checked_to.get(partition, 0))
        for sequence in range(first, position.sequence):
            if sequence not in done:
                yield (
                    f"the cursor is at {position} of partition {partition}, but no reader was"
                    f" done with {sequence}"
                )
        self._checked_to[partition] = max(first, position.sequence)


def _wrong_step(
    partition: int,
    before: PartitionStanding,
    after: PartitionStanding,
    seen: CursorLook,
    now: CursorLook,
) -> Iterator[str]:
    old, new = before.record, after.record
    place = f"partition {partition}, version {after.version}"
    was, is_now = old.position, new.position
    is_sought = new.seeks != old.seeks
    if not is_sought and was is not None and (is_now is None or is_now < was):
        yield f"the cursor went back from {was} to {is_now} ({place})"
    if is_sought or before.version is None or after.version != before.version + 1:
        return  # A seek, more than one step, or none.
    is_claim = new.reader not in (old.reader, NO_READER)
    if is_claim and is_now != was:
        yield f"{new.reader} committed {is_now}, but {old.reader} had {place}"
    if new.reader == old.reader and not {new.reader} & (seen.readers | now.readers):
        yield f"{new.reader} committed {is_now} without a lease ({place})"
