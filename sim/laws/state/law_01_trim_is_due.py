"""Law 1: a partition begins no later than its truncations ask for or its retention allows.

Retention is judged by the rest of the list, which has only grown since. Wall clocks that a
fault has moved excuse nothing, however far they are off.
"""

from collections.abc import Iterator

import attrs
import trio

from sim.laws.state.seen import Look


@attrs.define
class TrimIsDue:
    """Keeps the start of each partition."""

    _before: dict[int, int] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the trims that have moved."""
        for partition, trim in now.trims.items():
            first = trim.first_sequence
            if first == self._before.get(partition, 0):
                continue
            self._before[partition] = first
            if _was_asked_for(now, partition, first):
                continue
            now.history.happened.add("retention-trimmed")
            if not (_is_room_kept(now, partition, first) or _is_old(now, partition, first)):
                yield (
                    f"partition {partition} begins at {first}: no truncation asked for that,"
                    " and retention does not allow it"
                )


def _was_asked_for(now: Look, partition: int, first: int) -> bool:
    return any(
        one.partition == partition and (one.limit is None or one.limit >= first)
        for one in now.history.truncations
    )


def _is_room_kept(now: Look, partition: int, first: int) -> bool:
    """Whether as many bytes remain as retention must keep."""
    limit_bytes = now.world.options.stream.retention_bytes
    kept_bytes = sum(
        row.size_bytes or 0
        for row in now.lists[partition].values()
        if row.is_completed and row.first_sequence >= first
    )
    return limit_bytes is not None and kept_bytes >= limit_bytes


def _is_old(now: Look, partition: int, first: int) -> bool:
    """Whether all known records that are gone were sent long enough ago."""
    retention_s = now.world.options.stream.retention_s
    if retention_s is None:
        return False
    sent_s = max(
        (
            append.sent_s
            for append in now.history.acknowledged_in_order
            if append.partition == partition and append.place[1] < first
        ),
        default=0.0,
    )
    return sent_s <= trio.current_time() - retention_s
