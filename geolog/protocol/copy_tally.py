"""Which entries of a ledger have fewer than W confirmed copies.

An entry counts with an ack set; the rest of its write set may lack it: the member was away, or
held back, or its answer was lost. The writer keeps no such entries and does not send them
again. It notes where they are, so that a copier can be told when the ledger is closed. A member
confirms entries in their order, so one number per slot, and the ranges that it skipped, are all
that is kept.

Invariants.
1. Of a slot, each entry of its write sets from `first` on is below the number and in no range
   (confirmed), below it and in a range (missing), or not below it (not confirmed yet).
2. At most `RANGES_MAX` ranges per slot are kept; beyond that neighbours become one, so that
   entries may be called missing that are not, but never the reverse.

Rules: PROTOCOL W12.
"""

import attrs

from geolog.protocol.ids import EntryId
from topology.quorum import AckRule

RANGES_MAX = 16
"""Per slot: each stands for a time in which the member was away."""


@attrs.frozen(order=True)
class MissingCopies:
    """No copy at this slot's member is confirmed, of its entries from `first` to `last`."""

    slot: int
    first: EntryId
    last: EntryId


class CopyTally:
    """Counts copies of entries from `first` on, in one ensemble after the other."""

    def __init__(self, rule: AckRule, *, first: EntryId) -> None:
        self._rule = rule
        self._next = [self._next_of(slot, first) for slot in range(rule.config.ensemble_size)]
        self._ranges: list[list[tuple[int, int]]] = [[] for _ in self._next]

    def on_confirmed(self, slot: int, entry: EntryId) -> None:
        """The slot's member has the entry, which is of its write sets, on disk."""
        due = self._next[slot]
        if entry < due:
            self._fill(slot, entry)
            return
        if entry > due:
            self._skip(slot, due, entry - 1)
        self._next[slot] = self._next_of(slot, entry + 1)

    def on_replaced(self, slot: int, first: EntryId) -> None:
        """Another member has the slot from entry `first` on."""
        due = self._next[slot]
        if due < first:
            self._skip(slot, due, first - 1)
        self._ranges[slot] = [
            (low, min(high, first - 1)) for low, high in self._ranges[slot] if low < first
        ]
        self._next[slot] = self._next_of(slot, first)

    def is_awaited(self, slot: int, last: EntryId) -> bool:
        """Whether confirmations of entries up to `last` may still come of this slot."""
        return self._next[slot] <= last

    def missing(self, last: EntryId) -> list[MissingCopies]:
        """What is missing of entries up to `last`, by slot."""
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
        """The first entry, from this one on, of whose write set the slot is."""
        while not self._rule.write_mask(entry) >> slot & 1:
            entry += 1
        return entry

    def _skip(self, slot: int, low: int, high: int) -> None:
        ranges = self._ranges[slot]
        ranges.append((low, high))
        if len(ranges) > RANGES_MAX:
            ranges[-2:] = [(ranges[-2][0], high)]

    def _fill(self, slot: int, entry: int) -> None:
        """An entry that was skipped is confirmed after all."""
        left: list[tuple[int, int]] = []
        for low, high in self._ranges[slot]:
            if not low <= entry <= high:
                left.append((low, high))
                continue
            above = self._next_of(slot, entry + 1)
            left += [part for part in ((low, entry - 1), (above, high)) if part[0] <= part[1]]
        if len(left) <= RANGES_MAX:
            self._ranges[slot] = left
