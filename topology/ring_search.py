"""Finding a ring whose every write set adheres: construct first, then a bounded exact search.

Two constructions are tried: domains dealt in turns, and the same shares spread evenly round
the ring. Both begin from the most even shares that the nodes allow: no others have more outside
their fullest domains. When those shares break a limit no ring can keep it: each slot is in W of
the E write sets, so outside any k domains must lie E * o / W slots of the ring. That is the
obstacle, and it is told in numbers. What is left is searched slot by slot, turning back where a
write set can no longer adhere; the search ends at a bound, and says so.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from topology.errors import NotEnoughNodesError
from topology.window_rule import Adherence, Label, Limit, WindowRule, rank_of, shares_dealt

SEARCH_STEPS_MAX = 5_000
"""Slots filled by one search before it gives up: at most about 0.2 s."""


class PlacementUndecidedError(NotEnoughNodesError):
    """The search for an ensemble was cut off at its bound: more or other nodes would help."""


@attrs.frozen
class Obstacle:
    """Why no ring can adhere: what must lie outside the fullest domains, and what can."""

    limit: Limit
    fullest: tuple[str, ...]
    needed: int
    available: int

    def told(self, noun: str) -> str:
        """As part of a message; `noun` is what a domain is, as `region`."""
        if not self.fullest:
            return f"{self.needed} nodes are needed, there are {self.available}"
        names = " and ".join(self.fullest)
        plural = "s" if len(self.fullest) > 1 else ""
        return (
            f"at least {self.needed} nodes must lie outside {noun}{plural}"
            f" {names}, there are {self.available}: {self.needed - self.available} short"
        )


def find_ring(
    size: int, counts: Mapping[Label, int], rule: WindowRule
) -> tuple[list[Label], Adherence] | None:
    """Labels for `size` slots, as adherent as can be; None if no ring is even SOFT.

    `counts` says how many nodes each label has; those named first are served first.
    PlacementUndecidedError if the bound was reached before either was sure.
    """
    is_cut_off = False
    soft: list[Label] | None = None
    for ring in _constructions(size, counts):
        found = rule.judge(ring)
        if found is Adherence.STRICT:
            return ring, found
        if found is Adherence.SOFT and soft is None:
            soft = ring
    levels = [Adherence.STRICT] if rule.strict else []
    levels += [Adherence.SOFT] if soft is None else []
    for wanted in levels:
        if obstacle_of(size, counts, rule, wanted) is not None:
            continue
        search = _RingSearch(size, counts, rule, wanted)
        ring_found = search.run()
        if ring_found is not None:
            return ring_found, rule.judge(ring_found)
        is_cut_off = is_cut_off or search.is_cut_off
    if soft is not None:
        return soft, Adherence.SOFT
    if is_cut_off:
        raise PlacementUndecidedError(
            f"no ensemble of {size} with write sets of {rule.width} was found within"
            f" {SEARCH_STEPS_MAX} steps, though there may be one"
        )
    return None


def obstacle_of(
    size: int, counts: Mapping[Label, int], rule: WindowRule, wanted: Adherence
) -> Obstacle | None:
    """The first limit that no ring on these nodes can keep; None if none is known."""
    domains: Counter[str] = Counter()
    for label, count in counts.items():
        domains[label[0]] += count
    if domains.total() < size:
        return Obstacle(Limit(0, size), (), size, domains.total())
    shares = Counter(shares_dealt(domains, size))
    for limit in rule.limits(wanted):
        needed = -(-size * limit.outside_min // min(rule.width, size))
        top = shares.most_common(limit.domains)
        outside = size - sum(share for _, share in top)
        if outside < needed:
            fullest = tuple(sorted(name for name, share in top if share))
            available = sum(count for name, count in domains.items() if name not in fullest)
            return Obstacle(limit, fullest, needed, min(available, outside))
    return None


def _constructions(size: int, counts: Mapping[Label, int]) -> Iterator[list[Label]]:
    """Rings worth trying before a search: none if there are too few nodes."""
    domains: dict[str, dict[Label, int]] = {}
    for label, count in counts.items():
        domains.setdefault(label[0], {})[label] = count
    shares = shares_dealt({name: sum(inner.values()) for name, inner in domains.items()}, size)
    if sum(shares.values()) < size:
        return
    for construct in (_dealt, _spread):
        piles = {name: iter(_inner_dealt(domains[name], shares[name])) for name in domains}
        yield [next(piles[name]) for name in construct(shares)]


def _inner_dealt(counts: Mapping[Label, int], size: int) -> list[Label]:
    taken: Counter[Label] = Counter()
    dealt: list[Label] = []
    while len(dealt) < size:
        for label, count in counts.items():
            if taken[label] < count:
                taken[label] += 1
                dealt.append(label)
    return dealt[:size]


def _dealt(shares: Mapping[str, int]) -> list[str]:
    """One slot of each, then the next of each."""
    rounds = max(shares.values(), default=0)
    return [name for turn in range(rounds) for name, share in shares.items() if share > turn]


def _spread(shares: Mapping[str, int]) -> list[str]:
    """Each one's slots at equal distances round the ring."""
    marks = sorted(
        ((turn + 0.5) / share, order, name)
        for order, (name, share) in enumerate(shares.items())
        for turn in range(share)
    )
    return [name for _, _, name in marks]


class _RingSearch:
    """Fills the ring slot by slot and turns back where a write set can no longer adhere."""

    def __init__(
        self, size: int, counts: Mapping[Label, int], rule: WindowRule, wanted: Adherence
    ) -> None:
        self._size = size
        self._width = min(rule.width, size)
        self._rule = rule
        self._wanted = wanted
        self._left = dict(counts)
        inner: dict[str, list[int]] = {}
        for label, count in counts.items():
            inner.setdefault(label[0], []).append(count)
        self._shapes = {domain: tuple(sorted(shape)) for domain, shape in inner.items()}
        self._ring: list[Label] = []
        self._steps = 0
        self.is_cut_off = False

    def run(self) -> list[Label] | None:
        """The first ring that adheres as wanted; None if there is none, or if it is cut off."""
        return self._ring if self._fill() else None

    def _fill(self) -> bool:
        if len(self._ring) == self._size:
            return rank_of(self._rule.judge(self._ring)) >= rank_of(self._wanted)
        for label in self._next_labels():
            self._steps += 1
            if self._steps > SEARCH_STEPS_MAX:
                self.is_cut_off = True
                return False
            self._ring.append(label)
            self._left[label] -= 1
            if self._can_adhere() and self._fill():
                return True
            self._ring.pop()
            self._left[label] += 1
            if self.is_cut_off:
                return False
        return False

    def _next_labels(self) -> list[Label]:
        """Labels with nodes left, those of the fullest domains first: hardest to place later.

        Of labels that nothing tells apart, because neither is in the ring yet, one is enough.
        """
        left: Counter[str] = Counter()
        for label, count in self._left.items():
            left[label[0]] += count
        recent = Counter(label[0] for label in self._ring[-(self._width - 1) :])
        used_domains = {label[0] for label in self._ring}
        used = set(self._ring)
        seen: set[tuple[object, ...]] = set()
        labels: list[Label] = []
        for label, count in self._left.items():
            if not count:
                continue
            key: tuple[object, ...] = (label,)
            if label[0] not in used_domains:
                key = ("domain", self._shapes[label[0]], count)
            elif label not in used:
                key = ("label", label[0], count)
            if key not in seen:
                seen.add(key)
                labels.append(label)
        return sorted(labels, key=lambda label: (-left[label[0]], recent[label[0]]))

    def _can_adhere(self) -> bool:
        """Whether the write sets that the last slot is in can adhere, full or not yet."""
        filled = len(self._ring)
        window: Sequence[Label] = self._ring[-self._width :]
        if not self._rule.may_hold(window, self._width - len(window), self._wanted):
            return False
        # Write sets that go on over the ring's end and begin.
        for first in range(max(filled - self._width + 1, self._size - self._width + 1), filled):
            wrapped = self._width - (self._size - first)
            if wrapped > first:
                continue
            window = [*self._ring[first:], *self._ring[:wrapped]]
            if not self._rule.may_hold(window, self._width - len(window), self._wanted):
                return False
        return True
