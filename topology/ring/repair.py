"""Make a ring adhere with the fewest changes: a bounded exact search.

It first tries the number of changes that are certainly needed, then one more, and so on: the
first number that suffices is the smallest. The certain need is counted over write sets that
share no slot: each has a minimum number of slots that must change, to any label. The same
count, over the undecided slots, ends a branch as soon as the remaining changes cannot suffice.

Rules: PROTOCOL P7.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from topology.ring.obstacle import obstacle_of
from topology.ring.search import PlacementUndecidedError, find_ring
from topology.ring.window_rule import Adherence, Label, WindowRule

REPAIR_STEPS_MAX = 5_000
"""Slots that one search decides before it gives up: at most about a second."""


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
    wanted: Adherence = Adherence.SOFT,
) -> RingRepair | None:
    """The fewest changes that make the ring as `wanted` or better, STRICT among equals.

    `free` counts the nodes outside the ring; those in `movable` slots may take another slot.
    Slots in `must_go` change in any case. None if nothing makes it adhere;
    PlacementUndecidedError if the search reached its bound first.
    """
    if None not in ring:
        pool = Counter(dict(free))
        pool.update(label for label in ring if label is not None)
        if obstacle_of(len(ring), pool, rule, wanted) is not None:
            return None
        if wanted is Adherence.SOFT and find_ring(len(ring), pool, rule) is None:
            return None
    return _RepairSearch(ring, rule, free, movable, must_go).run(wanted)


class _RepairSearch:
    """Decides slot after slot: kept, or changed to a label."""

    def __init__(
        self,
        ring: Sequence[Label | None],
        rule: WindowRule,
        free: Mapping[Label, int],
        movable: frozenset[int],
        must_go: frozenset[int],
    ) -> None:
        self._before = tuple(ring)
        self._ring = list(ring)
        self._size = len(ring)
        self._rule = rule
        self._free = free
        self._movable = movable
        self._must_go = must_go
        width = min(rule.width, self._size)
        self._is_one_window = width == self._size
        firsts = [0] if self._is_one_window else range(self._size)
        self._windows = [
            tuple((first + turn) % self._size for turn in range(width)) for first in firsts
        ]
        self._choices: dict[int, Label | None] = {}
        self._taken: Counter[Label] = Counter()
        self._steps = 0

    def run(self, least: Adherence) -> RingRepair | None:
        levels = [Adherence.STRICT] if self._rule.strict else []
        if least is not Adherence.STRICT or not levels:
            levels.append(Adherence.SOFT)
        for changes in range(self._size + 1):
            for wanted in levels:
                for is_moving in (False, True):
                    if self._decide(0, changes, wanted, is_moving=is_moving):
                        return RingRepair(self._changed())
        return None

    def _changed(self) -> dict[int, Label]:
        return {slot: label for slot, label in self._choices.items() if label is not None}

    def _decide(self, slot: int, left: int, wanted: Adherence, *, is_moving: bool) -> bool:
        self._steps += 1
        if self._steps > REPAIR_STEPS_MAX:
            raise PlacementUndecidedError(
                f"found no repair within {REPAIR_STEPS_MAX} steps, though there may be one"
            )
        if self._needed(slot, wanted) > left:
            return False
        if slot == self._size:
            return self._is_supplied()
        for label in self._labels_for(slot, left, is_moving=is_moving):
            self._choices[slot] = label
            if label is not None:
                self._ring[slot] = label
                self._taken[label] += 1
            if self._decide(slot + 1, left - (label is not None), wanted, is_moving=is_moving):
                return True
            if label is not None:
                self._ring[slot] = self._before[slot]
                self._taken[label] -= 1
            del self._choices[slot]
        return False

    def _needed(self, slot: int, wanted: Adherence) -> int:
        """The least number of slots, from this one on, that must change."""
        counted = {one for one in self._must_go if one >= slot}
        needed = len(counted)
        for window in self._windows:
            changes = self._rule.changes_needed([self._ring[one] for one in window], wanted)
            if changes == 0:
                continue
            open_ = [one for one in window if one >= slot]
            if len(open_) < changes:
                return self._size + 1
            if not counted.intersection(open_):
                counted.update(open_)
                needed += changes
        return needed

    def _labels_for(self, slot: int, left: int, *, is_moving: bool) -> Iterator[Label | None]:
        """None to keep the slot, and labels it may change to, one of each equivalent group."""
        kind = self._kind(slot)
        if slot not in self._must_go:
            yield None
        if left == 0:
            return
        least = None
        if self._is_one_window:
            # Only shares count: of equivalent slots the first change, labels in order.
            if any(
                label is None and self._kind(one) == kind
                for one, label in self._choices.items()
                if one < slot
            ):
                return
            least = max(
                (label for one, label in self._choices.items() if label and one < slot),
                default=None,
            )
        in_ring = {label for label in self._ring if label is not None}
        seen: set[tuple[str, int]] = set()
        for label in self._pool(slot, is_moving=is_moving):
            if label == self._before[slot] or (least is not None and label < least):
                continue
            if label not in in_ring and len(label) == 1:
                key = ("new", self._supply(label))
                if key in seen and not self._is_one_window:
                    continue
                seen.add(key)
            yield label

    def _kind(self, slot: int) -> tuple[Label | None, bool, bool]:
        return self._before[slot], slot in self._movable, slot in self._must_go

    def _pool(self, slot: int, *, is_moving: bool) -> list[Label]:
        """Labels with a node still available, new nodes first."""
        found = [label for label in self._free if self._taken[label] < self._free[label]]
        if is_moving:
            known = {*self._free, *(one for one in self._before if one is not None)}
            found += sorted(
                label
                for label in known
                if label not in found and self._taken[label] < self._most(label, slot)
            )
        return found

    def _supply(self, label: Label) -> int:
        return self._free.get(label, 0) - self._taken[label]

    def _most(self, label: Label, slot: int) -> int:
        """The most nodes of a label there can be in the end, if all later ones move."""
        moved = sum(
            one in self._movable
            and self._before[one] == label
            and (one >= slot or self._choices.get(one) is not None)
            for one in range(self._size)
        )
        return self._free.get(label, 0) + moved

    def _is_supplied(self) -> bool:
        return all(
            count <= self._most(label, self._size) for label, count in self._taken.items()
        )
