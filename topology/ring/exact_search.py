"""The exact search for a ring: slot by slot, turning back as soon as the rest cannot be filled.

It turns back when a write set can no longer adhere, and also for lack of:

- *room*: a domain may take only so many slots of a write set. That fixes the earliest slots
  that each domain can still take. If for some number of next slots all domains together cannot
  fill them, the ring cannot be filled.
- *reach*: a write set needs a certain number of domains. Each remaining node takes its domain
  into at most W write sets; if that is less than the open write sets still need, they fail.

Rings can be turned: a label that cannot be in the first slot is in no ring at all. Domains with
the same numbers of nodes are equivalent, so one outcome stands for all layouts of those
numbers, and is remembered.

The first search tries the fullest domains first: this proves most impossible cases. If it is
cut off, short searches in random orders follow, each close to even spreading: a ring that takes
one order a million steps is often found at once by another. The draws are the same each time.

Rules: PROTOCOL P3.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import attrs

from topology.ring.window_rule import Adherence, Label, WindowRule, rank_of, shares_dealt

_PROOF_STEPS_MAX = 2_000
_DRAWN_STEPS_MAX = 150
_DRAWS_MAX = 30

SEARCH_STEPS_MAX = _PROOF_STEPS_MAX + _DRAWS_MAX * _DRAWN_STEPS_MAX
"""Slots that one search fills before it gives up: at most about 0.3 s."""

_NOISE = 0.5
"""How far a random order may be from even spreading, as a fraction of the ring."""

_OUTCOMES_MAX = 512
"""Outcomes to remember: a cluster has few shapes, and its ledgers ask again."""

_Shape = tuple[int, ...]
"""The numbers of nodes of a domain's labels, falling."""


@attrs.frozen
class SearchedRing:
    """Result of a search: a ring, a proof that there is none, or a cut-off."""

    labels: tuple[Label, ...] | None
    is_cut_off: bool = False


def search_ring(
    size: int, counts: Mapping[Label, int], rule: WindowRule, wanted: Adherence
) -> SearchedRing:
    """A ring with the wanted adherence; its first slot has the domain that is named first."""
    domains: dict[str, list[Label]] = {}
    for label, count in counts.items():
        if count:
            domains.setdefault(label[0], []).append(label)
    inner = {
        name: sorted(labels, key=lambda label: -counts[label])
        for name, labels in domains.items()
    }
    shapes = {name: tuple(counts[label] for label in inner[name]) for name in inner}
    order = sorted(inner, key=lambda name: (-sum(shapes[name]), shapes[name]))
    outcome = _searched(size, tuple(shapes[name] for name in order), rule, wanted)
    if outcome.labels is None:
        return outcome
    ring = [inner[order[int(domain)]][int(at)] for domain, at in outcome.labels]
    names = [label[0] for label in ring]
    first = next(names.index(name) for name in domains if name in names)
    return SearchedRing((*ring[first:], *ring[:first]))


@lru_cache(maxsize=_OUTCOMES_MAX)
def _searched(
    size: int, shapes: tuple[_Shape, ...], rule: WindowRule, wanted: Adherence
) -> SearchedRing:
    """The same for domains given by their numbers; labels are (domain, at), as digits."""
    for draw in range(_DRAWS_MAX + 1):
        rng = random.Random(draw) if draw else None
        search = _RingSearch(size, shapes, rule, wanted, rng)
        found = search.run()
        if found is not None or not search.is_cut_off:
            return SearchedRing(found)
    return SearchedRing(None, is_cut_off=True)


class _RingSearch:
    """Fills the ring; its state is the ring so far, and the remaining nodes of each label."""

    def __init__(
        self,
        size: int,
        shapes: Sequence[_Shape],
        rule: WindowRule,
        wanted: Adherence,
        rng: random.Random | None,
    ) -> None:
        self._size = size
        self._width = min(rule.width, size)
        self._rule = rule
        self._wanted = wanted
        self._rng = rng
        """Draws the order of trying; None: the fullest domains go first."""
        self._steps_left = _DRAWN_STEPS_MAX if rng else _PROOF_STEPS_MAX
        self._shapes = {str(domain): shape for domain, shape in enumerate(shapes)}
        self._left: dict[Label, int] = {
            (domain, str(at)): count
            for domain, shape in self._shapes.items()
            for at, count in enumerate(shape)
        }
        self._left_in = Counter({name: sum(shape) for name, shape in self._shapes.items()})
        self._share_max = {
            name: rule.share_max(self._width, len(shapes), wanted, inner=len(shape))
            for name, shape in self._shapes.items()
        }
        self._domains_min = rule.domains_min(self._width, wanted)
        self._shares = shares_dealt(
            {
                name: min(self._share_max[name] * size // self._width, count)
                for name, count in self._left_in.items()
            },
            size,
        )
        self._sets_of = [
            sum(1 << (slot - turn) % size for turn in range(self._width))
            for slot in range(size)
        ]
        """The write sets that contain a slot, as a mask of their first slots."""
        self._ring: list[Label] = []
        self._slots: dict[str, list[int]] = {name: [] for name in self._shapes}
        self.is_cut_off = False

    def run(self) -> tuple[Label, ...] | None:
        """The first ring with the wanted adherence; None if there is none, or at the bound."""
        return tuple(self._ring) if self._fill() else None

    def _fill(self) -> bool:
        if len(self._ring) == self._size:
            return rank_of(self._rule.judge(self._ring)) >= rank_of(self._wanted)
        for alike in self._next_labels():
            if not self._steps_left:
                self.is_cut_off = True
                return False
            self._steps_left -= 1
            self._put(alike[0])
            if self._can_adhere() and self._has_room() and self._reaches() and self._fill():
                return True
            self._take_back()
            if self.is_cut_off:
                return False
            if not self._ring:
                self._give_up(alike)
        return False

    def _put(self, label: Label) -> None:
        self._slots[label[0]].append(len(self._ring))
        self._ring.append(label)
        self._left[label] -= 1
        self._left_in[label[0]] -= 1

    def _take_back(self) -> None:
        label = self._ring.pop()
        self._slots[label[0]].pop()
        self._left[label] += 1
        self._left_in[label[0]] += 1

    def _give_up(self, labels: Sequence[Label]) -> None:
        """Rule these labels out: a ring with one of them could be turned to start with it."""
        for label in labels:
            self._left_in[label[0]] -= self._left[label]
            self._left[label] = 0

    def _next_labels(self) -> list[list[Label]]:
        """Labels with nodes left, equivalent ones grouped, best first."""
        used = set(self._ring)
        found: dict[tuple[object, ...], list[Label]] = {}
        for label, count in self._left.items():
            if not count:
                continue
            key: tuple[object, ...] = (label,)
            if not self._slots[label[0]]:
                key = ("domain", self._shapes[label[0]], count)
            elif label not in used:
                key = ("label", label[0], count)
            found.setdefault(key, []).append(label)
        if self._rng is None:
            recent = Counter(label[0] for label in self._ring[-(self._width - 1) :])
            rank: dict[str, tuple[float, int]] = {
                name: (-left, recent[name]) for name, left in self._left_in.items()
            }
        else:
            spread = _NOISE * self._size
            rank = {
                name: (self._due(name) + spread * self._rng.random(), 0) for name in self._slots
            }
        return sorted(found.values(), key=lambda alike: rank[alike[0][0]])

    def _due(self, domain: str) -> float:
        """The slot that it should take next if its share were spread evenly."""
        share, slots = self._shares[domain], self._slots[domain]
        if not share:
            return float(self._size)
        gap = self._size / share
        return slots[-1] + gap if slots else gap / 2

    def _can_adhere(self) -> bool:
        """Whether the write sets with the last slot can adhere, full or not yet."""
        filled = len(self._ring)
        window: Sequence[Label] = self._ring[-self._width :]
        if not self._rule.may_hold(window, self._width - len(window), self._wanted):
            return False
        # Write sets that wrap over the ring's end to its beginning.
        for first in range(max(filled - self._width + 1, self._size - self._width + 1), filled):
            wrapped = self._width - (self._size - first)
            if wrapped > first:
                continue
            window = [*self._ring[first:], *self._ring[:wrapped]]
            if not self._rule.may_hold(window, self._width - len(window), self._wanted):
                return False
        return True

    def _has_room(self) -> bool:
        """Whether all domains, each as early as possible, can fill the remaining slots."""
        filled = len(self._ring)
        ready = [0] * self._size
        for domain in self._slots:
            for slot in self._earliest(domain):
                ready[slot] += 1
        spare = 0
        for slot in range(filled, self._size):
            spare += ready[slot] - 1
            if spare < 0:
                return False
        return True

    def _earliest(self, domain: str) -> list[int]:
        """The earliest further slots that the domain can take, as many as it can."""
        filled, most, width = len(self._ring), self._share_max[domain], self._width
        slots = list(self._slots[domain])
        placed_count = len(slots)
        for _ in range(self._left_in[domain] if most else 0):
            slot = max(filled, slots[-1] + 1) if slots else filled
            if len(slots) >= most:
                slot = max(slot, slots[-most] + width)
            if slot >= self._size:
                break
            slots.append(slot)
        # Of the first slots count only those already placed: others may come later than they
        # could, to be far enough from the last over the ring's end.
        ends = range(min(most, placed_count))
        while len(slots) > max(most, placed_count) and any(
            slots[at] + self._size - slots[at - most] < width for at in ends
        ):
            slots.pop()
        return slots[placed_count:]

    def _reaches(self) -> bool:
        """Whether the nodes left can take their domains into all write sets that need them."""
        open_sets = 0
        for slot in range(len(self._ring), self._size):
            open_sets |= self._sets_of[slot]
        reached = [self._sets_reached(domain) for domain in self._slots]
        needed = sum(
            max(0, self._domains_min - sum(sets >> first & 1 for sets in reached))
            for first in range(self._size)
            if open_sets >> first & 1
        )
        if not needed:
            return True
        most = sum(
            min((open_sets & ~sets).bit_count(), self._width * self._left_in[domain])
            for domain, sets in zip(self._slots, reached, strict=True)
        )
        return most >= needed

    def _sets_reached(self, domain: str) -> int:
        """The write sets that it is in, as a mask of their first slots."""
        sets = 0
        for slot in self._slots[domain]:
            sets |= self._sets_of[slot]
        return sets
