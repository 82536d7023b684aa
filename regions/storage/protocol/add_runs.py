"""The adds of one connection, over several journals: up to which one all of them are on disk.

Theory of operation. Adds are numbered from 1 in order of arrival. Each add that is not refused
goes to the journal of its ledger's directory, and there to a group that is synced as one. Only
the first add of each group counts: the groups of one directory are synced in order, so
everything that may be missing is at or above the lowest first add of an unsynced group.

Invariants.
1. The return value of `on_synced` only rises, and is never at or above an add that was taken
   and is not synced.
2. When every group is synced, it has returned the last add that was taken.

Rules: PROTOCOL N16.
"""

from collections import deque

import attrs


@attrs.frozen
class _Run:
    """The adds of one connection in one group."""

    group: int
    first: int


class AddRuns:
    """Adds of one connection that were taken and are not synced yet."""

    def __init__(self, directories_count: int) -> None:
        self._runs: list[deque[_Run]] = [deque() for _ in range(directories_count)]
        self._taken_through = 0
        self._synced_through = 0

    def __repr__(self) -> str:
        return f"AddRuns({self._synced_through} to {self._taken_through})"

    def take(self, directory: int, group: int, ordinal: int) -> bool:
        """Note an add of this group; whether it is its connection's first in the group."""
        assert ordinal > self._taken_through, f"{ordinal} came after {self._taken_through}"
        self._taken_through = ordinal
        runs = self._runs[directory]
        if runs and runs[-1].group == group:
            return False
        runs.append(_Run(group, ordinal))
        return True

    def on_synced(self, directory: int) -> int | None:
        """The directory's oldest group is on disk: up to which add all are; None if unchanged.

        Refused adds count as if they were on disk: their refusal was sent before.
        """
        self._runs[directory].popleft()
        firsts = [runs[0].first for runs in self._runs if runs]
        through = min(firsts) - 1 if firsts else self._taken_through
        if through <= self._synced_through:
            return None
        self._synced_through = through
        return through
