"""Which domains take the slots of members that are lost, while the others keep theirs.

As many slots as can be are given away, and among those choices one of the best adherence: a
member that no node can stand in for keeps its slot. Domains that the ring has least of come
first, those named first among equals, so that a choice that is good for one write set is mostly
good for all. Else a bounded search, which turns back where a write set can no longer be STRICT,
looks for such a ring; and of those that are tried first the best is taken where it finds none.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from topology.window_rule import Adherence, Label, WindowRule

RINGS_TRIED_MAX = 500
"""Rings of labels that are judged before the best so far is taken: about 0.1 s."""

STRICT_STEPS_MAX = 2_000
"""Slots filled in the search for a STRICT ring before it gives up: about 0.1 s."""


@attrs.frozen
class Replacement:
    """The node for each slot that is given away, and how the ring as a whole adheres then."""

    nodes: Mapping[int, str]
    adherence: Adherence


def labels_for_slots(
    rule: WindowRule,
    ring: Sequence[Label | None],
    slots: Sequence[int],
    free: Mapping[Label, int],
    *,
    is_best_effort: bool,
) -> dict[int, Label] | None:
    """A label for each slot that is given away; None if not one of them can be.

    `free` counts the nodes outside the ring; labels named first are served first. A ring that
    fails the rule is taken only as best effort, and only if there is no better one.
    """
    return _LabelSearch(rule, ring, sorted(set(slots)), free).best(is_best_effort)


class _LabelSearch:
    """Gives a label to each slot, or leaves it; the first ring that is good enough wins."""

    def __init__(
        self,
        rule: WindowRule,
        ring: Sequence[Label | None],
        slots: list[int],
        free: Mapping[Label, int],
    ) -> None:
        self._rule = rule
        self._ring = ring
        self._slots = slots
        self._left = Counter(dict(free))
        self._order = [label for label, count in free.items() if count]
        self._steps_left = 0

    def best(self, is_best_effort: bool) -> dict[int, Label] | None:  # noqa: FBT001 - Handed on.
        for count in range(min(len(self._slots), self._left.total()), 0, -1):
            found: dict[Adherence, dict[int, Label]] = {}
            for labels in self._rings(count):
                adherence = self._rule.judge(self._with(labels))
                if adherence is Adherence.STRICT:
                    return labels
                found.setdefault(adherence, labels)
            strict = self._strict(count) if found else None
            if strict is not None:
                return strict
            if Adherence.SOFT in found:
                return found[Adherence.SOFT]
            if is_best_effort:
                return found.get(Adherence.FAIL)
        return None

    def _strict(self, count: int) -> dict[int, Label] | None:
        """Labels for so many slots that make the ring STRICT; None if none was found."""
        self._steps_left = STRICT_STEPS_MAX
        for slots in itertools.combinations(self._slots, count):
            ring = [None if at in slots else label for at, label in enumerate(self._ring)]
            found = self._fill_strictly(slots, {}, ring)
            if found is not None:
                return found
        return None

    def _fill_strictly(
        self, slots: Sequence[int], found: dict[int, Label], ring: list[Label | None]
    ) -> dict[int, Label] | None:
        if len(found) == len(slots):
            is_strict = self._rule.judge(ring) is Adherence.STRICT
            return dict(found) if is_strict else None
        slot, open_slots = slots[len(found)], frozenset(slots[len(found) + 1 :])
        taken = Counter(found.values())
        for label in self._order:
            if taken[label] == self._left[label] or self._steps_left == 0:
                continue
            self._steps_left -= 1
            found[slot] = ring[slot] = label
            if self._may_be_strict(ring, slot, open_slots):
                filled = self._fill_strictly(slots, found, ring)
                if filled is not None:
                    return filled
            del found[slot]
            ring[slot] = None
        return None

    def _may_be_strict(
        self, ring: Sequence[Label | None], slot: int, open_slots: frozenset[int]
    ) -> bool:
        """Whether the write sets that a slot is in can be STRICT once all is filled."""
        places = [(label, at in open_slots) for at, label in enumerate(ring)]
        width = min(self._rule.width, len(ring))
        for first in range(slot - width + 1, slot + 1):
            window = [places[(first + turn) % len(ring)] for turn in range(width)]
            missing = sum(is_open for _, is_open in window)
            labels = [label for label, _ in window]
            if not self._rule.may_hold(labels, missing, Adherence.STRICT):
                return False
        return True

    def _with(self, labels: Mapping[int, Label]) -> list[Label | None]:
        return [labels.get(slot, label) for slot, label in enumerate(self._ring)]

    def _rings(self, count: int) -> Iterator[dict[int, Label]]:
        tried_count = 0
        for slots in itertools.combinations(self._slots, count):
            kept = [
                label
                for slot, label in enumerate(self._ring)
                if slot not in slots and label is not None
            ]
            shares: Counter[Label] = Counter()
            for label in kept:
                shares.update({label, label[:1]})
            for found in self._fill(slots, {}, shares, Counter(self._left)):
                yield found
                tried_count += 1
                if tried_count == RINGS_TRIED_MAX:
                    return

    def _fill(
        self,
        slots: Sequence[int],
        found: dict[int, Label],
        shares: Counter[Label],
        left: Counter[Label],
    ) -> Iterator[dict[int, Label]]:
        """Every way to fill the slots; `shares` counts labels, and domains as short ones."""
        if len(found) == len(slots):
            yield found
            return
        slot = slots[len(found)]
        for label in sorted(self._order, key=lambda one: (shares[one[:1]], shares[one])):
            if not left[label]:
                continue
            left[label] -= 1
            shares.update({label, label[:1]})
            yield from self._fill(slots, {**found, slot: label}, shares, left)
            left[label] += 1
            shares.subtract({label, label[:1]})
