"""Law 10: positions answered under an older ownership epoch lie before those of a newer one."""

from collections.abc import Iterator
from itertools import pairwise

import attrs

from sim.laws.state.seen import Look, SegmentKey


@attrs.define
class OwnersInOrder:
    """Keeps the process that answered for each segment: only the owner that made it may."""

    _answering: dict[SegmentKey, str] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the owners in the lists with the processes that answered."""
        for partition, segments in now.lists.items():
            rows = sorted(segments.values(), key=lambda row: row.row_number)
            for one, other in pairwise(rows):
                if other.owner_epoch < one.owner_epoch:
                    yield (
                        f"segment {other.segment} of partition {partition} was created under"
                        f" epoch {other.owner_epoch}, but {one.segment} before it under"
                        f" {one.owner_epoch}"
                    )
        for append in now.told:
            if append.is_duplicate or not append.answered_by:
                continue  # Another process put it there, or its session does not know which.
            first = self._answering.setdefault(append.segment_key, append.answered_by)
            if append.answered_by != first:
                yield (
                    f"{first} and {append.answered_by} both answered from segment"
                    f" {append.segment_key[1]} of partition {append.partition}"
                )
