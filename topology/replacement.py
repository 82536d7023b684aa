"""Choice of domains for the slots of lost members; the other members keep theirs.

As many slots as possible are replaced, and among those choices one of the best adherence is
taken: a member that no node can stand in for keeps its slot. Domains with the fewest slots in
the ring come first, those named first among equals: a choice good for one write set is mostly
good for all. If that fails, bounded searches look for a STRICT ring, then for a SOFT one, and
turn back where a write set can no longer adhere. If a search was cut off, the answer says so.

Rules: PROTOCOL P6.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from topology.ring.window_rule import Adherence, Label, WindowRule

JUDGED_MAX = 20_000
"""Write sets to judge, over all searches of one choice, before taking the best so far: 0.15 to
0.3 s."""


@attrs.frozen
class Replacement:
    """The node for each replaced slot, and how well the ring as a whole adheres then."""

    nodes: Mapping[int, str]
    adherence: Adherence
    is_undecided: bool = False
    """Whether more or better replacements may exist: a search was cut off."""


@attrs.frozen
class SlotLabels:
    """The label of each replaced slot; empty if none can be replaced."""

    labels: Mapping[int, Label]
    is_cut_off: bool
    """Whether a better choice may exist: the search for it was cut off."""


def labels_for_slots(
    rule: WindowRule,
    ring: Sequence[Label | None],
    slots: Sequence[int],
    free: Mapping[Label, int],
    *,
    is_best_effort: bool,
) -> SlotLabels:
    """A label for each slot to replace.

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
        self._width = min(rule.width, len(ring))
        self._judged_left = 0

    def best(self, is_best_effort: bool) -> SlotLabels:  # noqa: FBT001 - Passed on.
        is_open, judged_left = False, JUDGED_MAX
        for count in range(min(len(self._slots), self._left.total()), 0, -1):
            # The most slots deserve the longest search; each fewer number gets half of the
            # rest.
            judged_left //= 2
            found, is_all = self._tried(count, judged_left // 3)
            for wanted in (Adherence.STRICT, Adherence.SOFT):
                if wanted not in found and not is_all:
                    searched = self._searched(count, wanted, judged_left // 3)
                    is_open = is_open or not (searched or self._judged_left)
                    if searched:
                        found[wanted] = searched
                if wanted in found:
                    return SlotLabels(found[wanted], is_open)
            if found and is_best_effort:
                return SlotLabels(found[Adherence.FAIL], is_open)
        return SlotLabels({}, is_open)

    def _tried(
        self, count: int, judged_max: int
    ) -> tuple[dict[Adherence, dict[int, Label]], bool]:
        """The first ring of each adherence, up to a STRICT one; whether all were tried.

        Tries at least one.
        """
        found: dict[Adherence, dict[int, Label]] = {}
        self._judged_left = judged_max
        for labels in self._rings(count):
            if found and not self._judged_left:
                return found, False
            self._count_judged(len(self._ring))
            adherence = self._rule.judge(self._with(labels))
            found.setdefault(adherence, labels)
            if adherence is Adherence.STRICT:
                break
        return found, True

    def _searched(self, count: int, wanted: Adherence, judged_max: int) -> dict[int, Label]:
        """Labels for this many slots that make the ring adhere; empty if it found none.

        If it was cut off, its budget of judgements is used up.
        """
        self._judged_left = judged_max
        for slots in itertools.combinations(self._slots, count):
            if not self._judged_left:
                break
            ring = [None if at in slots else label for at, label in enumerate(self._ring)]
            if self._may_adhere(ring, range(len(ring)), frozenset(slots), wanted):
                found = self._filled(slots, {}, ring, wanted)
                if found:
                    return found
        return {}

    def _count_judged(self, count: int) -> None:
        self._judged_left = max(0, self._judged_left - count)

    def _filled(
        self,
        slots: Sequence[int],
        found: dict[int, Label],
        ring: list[Label | None],
        wanted: Adherence,
    ) -> dict[int, Label]:
        if len(found) == len(slots):
            return dict(found)
        slot, open_slots = slots[len(found)], frozenset(slots[len(found) + 1 :])
        firsts = range(slot - self._width + 1, slot + 1)
        taken = Counter(found.values())
        for label in self._order:
            if taken[label] == self._left[label] or not self._judged_left:
                continue
            found[slot] = ring[slot] = label
            if self._may_adhere(ring, firsts, open_slots, wanted):
                filled = self._filled(slots, found, ring, wanted)
                if filled:
                    return filled
            del found[slot]
            ring[slot] = None
        return {}

    def _may_adhere(
        self,
        ring: Sequence[Label | None],
        firsts: Iterable[int],
        open_slots: frozenset[int],
        wanted: Adherence,
    ) -> bool:
        """Whether the write sets with these first slots can adhere once all is filled."""
        size = len(ring)
        for first in firsts if self._width < size else (0,):
            self._count_judged(1)
            window = [(first + turn) % size for turn in range(self._width)]
            missing = sum(slot in open_slots for slot in window)
            if not self._rule.may_hold([ring[slot] for slot in window], missing, wanted):
                return False
        return True

    def _with(self, labels: Mapping[int, Label]) -> list[Label | None]:
        return [labels.get(slot, label) for slot, label in enumerate(self._ring)]

    def _rings(self, count: int) -> Iterator[dict[int, Label]]:
        for slots in itertools.combinations(self._slots, count):
            kept = [
                label
                for slot, label in enumerate(self._ring)
                if slot not in slots and label is not None
            ]
            shares: Counter[Label] = Counter()
            for label in kept:
                shares.update({label, label[:1]})
            yield from self._fill(slots, {}, shares, Counter(self._left))

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
