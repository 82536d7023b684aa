"""Counts which entries of a ledger have fewer than W confirmed copies.

An entry is acknowledged with an ack set. The rest of its write set may lack it: a member was
away or held back, or its answer was lost. The writer does not keep such entries or send them
again. It notes where they are, so that a copier can fetch them when the ledger is closed. A
member confirms entries in order, so one number per slot and the ranges it skipped are enough.

Invariants.
1. For each slot, an entry of its write sets, `first` or later, is below the number and in no
   range (confirmed), below it and in a range (missing), or not below it (not confirmed yet).
2. At most `RANGES_MAX` ranges per slot are kept. Beyond that neighbours are merged, so entries
   may be called missing that are not, but never the reverse.

Rules: PROTOCOL W12.
"""

import attrs

from geolog.protocol.ids import EntryId
from topology.quorum import AckRule

RANGES_MAX = 16
"""Per slot. Each range stands for a time when the member was away."""


@attrs.frozen(order=True)
class MissingCopies:
    """Entries `first` to `last` of this slot have no confirmed copy at its member."""

    slot: int
    first: EntryId
    last: EntryId


class CopyTally:
    """Counts copies of entries from `first`, in one ensemble after another."""

    def __init__(self, rule: AckRule, *, first: EntryId) -> None:
        self._rule = rule
        self._next = [self._next_of(slot, first) for slot in range(rule.config.ensemble_size)]
        self._ranges: list[list[tuple[int, int]]] = [[] for _ in self._next]

    def on_confirmed(self, slot: int, entry: EntryId) -> None:
        """The slot's member has the entry, which is in its write sets, on disk."""
        due = self._next[slot]
        if entry < due:
            self._fill(slot, entry)
            return
        if entry > due:
            self._skip(slot, due, entry - 1)
        self._next[slot] = self._next_of(slot, entry + 1)

    def on_replaced(self, slot: int, first: EntryId) -> None:
        """Another member has the slot, starting at entry `first`."""
        due = self._next[slot]
        if due < first:
            self._skip(slot, due, first - 1)
        self._ranges[slot] = [
            (low, min(high, first - 1)) for low, high in self._ranges[slot] if low < first
        ]
        self._next[slot] = self._next_of(slot, first)

    def is_awaited(self, slot: int, last: EntryId) -> bool:
        """Whether this slot may still confirm entries up to `last`."""
        return self._next[slot] <= last

    def missing(self, last: EntryId) -> list[MissingCopies]:
        """The missing copies of entries up to `last`, by slot."""
        found = []
        for slot, due in enumerate(self._next):
            ranges = self._ranges[slot] + ([(due, last)] if due <= last else [])
            found += [
                MissingCopies(slot, EntryId(low), EntryId(min(high, last)))
                for low, high in ranges
                if low <= last
            ]
        return found

    def _next_of(self, slot: int, entry: int) -> int:
        """The first entry, `entry` or later, whose write set includes the slot."""
        while not self._rule.write_mask(entry) >> slot & 1:
            entry += 1
        return entry

    def _skip(self, slot: int, low: int, high: int) -> None:
        ranges = self._ranges[slot]
        ranges.append((low, high))
        if len(ranges) > RANGES_MAX:
            ranges[-2:] = [(ranges[-2][0], high)]

    def _fill(self, slot: int, entry: int) -> None:
        """A skipped entry is confirmed after all."""
        left: list[tuple[int, int]] = []
        for low, high in self._ranges[slot]:
            if not low <= entry <= high:
                left.append((low, high))
                continue
            above = self._next_of(slot, entry + 1)
            left += [part for part in ((low, entry - 1), (above, high)) if part[0] <= part[1]]
        if len(left) <= RANGES_MAX:
            self._ranges[slot] = left
