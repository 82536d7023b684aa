"""Law 10: positions answered under an older ownership epoch lie before those under a newer."""

from collections.abc import Iterator
from itertools import pairwise

import attrs

from sim.laws.seen import Look


@attrs.define
class OwnersInOrder:
    """Keeps which process answered for each segment: only the owner that made it may."""

    _answering: dict[int, str] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the owners of the list with those who answered."""
        rows = sorted(now.segments.values(), key=lambda row: row.segment)
        for one, other in pairwise(rows):
            if other.owner_epoch < one.owner_epoch:
                yield (
                    f"segment {other.segment} was made under epoch {other.owner_epoch}, and"
                    f" {one.segment} before it under {one.owner_epoch}"
                )
        for append in now.told:
            assert append.dlsn is not None
            if append.is_duplicate:
                continue  # Another process of the same writer may have put it there.
            segment = append.dlsn.segment
            first = self._answering.setdefault(segment, append.answered_by)
            if append.answered_by != first:
                yield f"{first} and {append.answered_by} both answered from segment {segment}"
