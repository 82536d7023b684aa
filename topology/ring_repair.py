"""Making a ring adhere with the fewest changes: a bounded exact search.

Choices of slots are tried by size, so the first that can be filled has the fewest changes. Only
those are filled that touch every write set that is broken now. New nodes are preferred to
members that would move to another slot.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from topology.ring_search import PlacementUndecidedError, obstacle_of
from topology.window_rule import Adherence, Label, WindowRule

REPAIR_STEPS_MAX = 20_000
"""Slots filled by one search before it gives up: at most about 0.5 s."""


@attrs.frozen
class RingRepair:
    """New labels by slot; slots that are not named keep their node."""

    labels: Mapping[int, Label]


def repair_ring(
    ring: Sequence[Label | None],
    rule: WindowRule,
    free: Mapping[Label, int],
    *,
    movable: frozenset[int],
    must_go: frozenset[int],
) -> RingRepair | None:
    """The fewest changes that make the ring SOFT or better, STRICT among equals.

    `free` counts the nodes outside the ring; those in `movable` slots may take another slot.
    Slots in `must_go` change in any case. None if nothing makes it adhere;
    PlacementUndecidedError if the bound was reached first.
    """
    pool = Counter(dict(free))
    for slot in movable:
        label = ring[slot]
        assert label is not None, "a node that does not count cannot move"
        pool[label] += 1
    if None not in ring and obstacle_of(len(ring), pool, rule, Adherence.SOFT) is not None:
        return None
    return _RepairSearch(ring, rule, free, movable, must_go).run()


class _RepairSearch:
    """Tries choices of slots, fewest first, and fills each."""

    def __init__(
        self,
        ring: Sequence[Label | None],
        rule: WindowRule,
        free: Mapping[Label, int],
        movable: frozenset[int],
        must_go: frozenset[int],
    ) -> None:
        self._ring = list(ring)
        self._size = len(ring)
        self._width = min(rule.width, self._size)
        self._rule = rule
        self._free = free
        self._movable = movable
        self._must_go = must_go
        self._steps = 0

    def run(self) -> RingRepair | None:
        for count in range(self._size + 1):
            for wanted in (Adherence.STRICT, Adherence.SOFT):
                for is_moving in (False, True):
                    found = self._with_changes(count, wanted, is_moving=is_moving)
                    if found is not None:
                        return RingRepair(found)
        return None

    def _with_changes(
        self, count: int, wanted: Adherence, *, is_moving: bool
    ) -> dict[int, Label] | None:
        broken = self._broken_windows(wanted)
        for slots in itertools.combinations(range(self._size), count):
            chosen = frozenset(slots)
            self._step()
            if not all(chosen & window for window in broken):
                continue
            pool = Counter(dict(self._free))
            if is_moving:
                moved = [slot for slot in slots if slot in self._movable]
                if not moved:
                    continue
                for slot in moved:
                    label = self._ring[slot]
                    assert label is not None
                    pool[label] += 1
            if pool.total() < count:
                continue
            found: dict[int, Label] = {}
            if self._fill(slots, found, pool, wanted):
                return found
        return None

    def _broken_windows(self, wanted: Adherence) -> list[frozenset[int]]:
        """Sets of slots of which one at least must change."""
        return [frozenset({slot}) for slot in self._must_go] + [
            window
            for window in self._windows()
            if not self._rule.may_hold([self._ring[slot] for slot in window], 0, wanted)
        ]

    def _windows(self) -> list[frozenset[int]]:
        if self._width == self._size:
            return [frozenset(range(self._size))]
        return [
            frozenset((first + turn) % self._size for turn in range(self._width))
            for first in range(self._size)
        ]

    def _fill(
        self,
        slots: Sequence[int],
        found: dict[int, Label],
        pool: Counter[Label],
        wanted: Adherence,
    ) -> bool:
        if len(found) == len(slots):
            return True
        slot = slots[len(found)]
        for label in [label for label, count in pool.items() if count]:
            self._step()
            found[slot] = label
            pool[label] -= 1
            if self._can_hold(slots, found, slot, wanted) and self._fill(
                slots, found, pool, wanted
            ):
                return True
            del found[slot]
            pool[label] += 1
        return False

    def _can_hold(
        self,
        slots: Sequence[int],
        found: Mapping[int, Label],
        changed: int,
        wanted: Adherence,
    ) -> bool:
        for window in self._windows():
            if changed not in window:
                continue
            labels: list[Label | None] = []
            missing = 0
            for slot in window:
                if slot in found:
                    labels.append(found[slot])
                elif slot in slots:
                    missing += 1
                else:
                    labels.append(self._ring[slot])
            if not self._rule.may_hold(labels, missing, wanted):
                return False
        return True

    def _step(self) -> None:
        self._steps += 1
        if self._steps > REPAIR_STEPS_MAX:
            raise PlacementUndecidedError(
                f"no repair was found within {REPAIR_STEPS_MAX} steps, though there may be one"
            )
