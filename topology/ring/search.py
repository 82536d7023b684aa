"""Find a ring whose every write set adheres: construct first, then a bounded exact search.

There are two constructions: domains dealt in turns, and the same shares spread evenly round the
ring. Both start from the most even shares that the nodes allow: no others have more outside
their fullest domains. If those shares break a limit over the ring as a whole, no ring can keep
it: that is an obstacle (`topology.ring.obstacle`). The rest is searched slot by slot
(`topology.ring.exact_search`); the search ends at a bound, and says so.

Rules: PROTOCOL P3.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from topology.errors import NotEnoughNodesError
from topology.ring.exact_search import SEARCH_STEPS_MAX, search_ring
from topology.ring.obstacle import obstacle_of
from topology.ring.window_rule import Adherence, Label, WindowRule, shares_dealt


class PlacementUndecidedError(NotEnoughNodesError):
    """The search for an ensemble was cut off at its bound: more or other nodes would help."""


@attrs.frozen
class FoundRing:
    """A ring that is at least SOFT."""

    labels: Sequence[Label]
    adherence: Adherence
    is_undecided: bool = False
    """It is SOFT, and a STRICT one may exist: that search was cut off."""


def find_ring(size: int, counts: Mapping[Label, int], rule: WindowRule) -> FoundRing | None:
    """Labels for `size` slots, as adherent as possible; None if no ring is even SOFT.

    `counts` is the number of nodes of each label; labels named first are served first.
    PlacementUndecidedError if the bound was reached before ruling out a SOFT one.
    """
    soft: Sequence[Label] | None = None
    for ring in _constructions(size, counts):
        found = rule.judge(ring)
        if found is Adherence.STRICT:
            return FoundRing(ring, found)
        if found is Adherence.SOFT and soft is None:
            soft = ring
    is_open = False
    levels = [Adherence.STRICT] if rule.strict else []
    levels += [Adherence.SOFT] if soft is None else []
    for wanted in levels:
        if obstacle_of(size, counts, rule, wanted) is not None:
            continue
        searched = search_ring(size, counts, rule, wanted)
        if searched.labels is not None:
            found = rule.judge(searched.labels)
            is_open = is_open and found is not Adherence.STRICT
            return FoundRing(searched.labels, found, is_open)
        if searched.is_cut_off and wanted is Adherence.SOFT:
            raise PlacementUndecidedError(undecided_told(size, rule.width))
        is_open = searched.is_cut_off
    return None if soft is None else FoundRing(soft, Adherence.SOFT, is_open)


def undecided_told(size: int, width: int, better: str = "") -> str:
    """Message of a search that was cut off; `better` if it had already found something."""
    return (
        f"found no {better + ' ' if better else ''}ensemble of {size} with write sets of"
        f" {width} within {SEARCH_STEPS_MAX} steps, though there may be one"
    )


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
