"""Which nodes take the slots of members that are lost, while the others keep theirs.

As many slots as can be are given away, and among those choices one of the best adherence: a
member that no node can stand in for keeps its slot. Regions that the ring has least of come
first, the local one among equals, so that a choice that is good for one write set is mostly
good for all; a bounded search over the regions finds the rest. Inside a region racks that the
ring does not use are preferred.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from topology.errors import NotEnoughNodesError
from topology.placement import Adherence, Candidate, adherence_of
from topology.quorum import QuorumConfig

RINGS_TRIED_MAX = 500
"""Rings of regions that are judged before the best so far is taken: about 0.1 s."""


@attrs.frozen
class Replacement:
    """The node for each slot that is given away, and how the ring as a whole adheres then."""

    nodes: Mapping[int, str]
    adherence: Adherence


def replace_nodes(
    config: QuorumConfig,
    ring: Sequence[Candidate],
    slots: Iterable[int],
    candidates: Iterable[Candidate],
    *,
    local_region: str | None,
    rng: random.Random,
) -> Replacement:
    """Choose nodes for these slots of the ring, from candidates that are not in it.

    NotEnoughNodesError when not one slot can be given to another node.
    """
    members = {one.node for one in ring}
    free = sorted(set(candidates))
    assert not members & {one.node for one in free}, "a member cannot replace another"
    search = _RegionSearch(config, ring, sorted(set(slots)), free, local_region, rng)
    found = search.best()
    if found is None:
        census = Counter(one.location.region for one in free)
        names = ", ".join(f"{region}: {census[region]}" for region in sorted(census))
        raise NotEnoughNodesError(
            f"no node that is up can take a place in an ensemble ({config}) of"
            f" {' '.join(one.location.region for one in ring)}; free are {names or 'none'}"
        )
    return Replacement(
        _nodes_of(found, ring, free, rng),
        adherence_of(config, _regions_with(ring, found)),
    )


class _RegionSearch:
    """Gives a region to each slot, or leaves it; the first ring that is good enough wins."""

    def __init__(
        self,
        config: QuorumConfig,
        ring: Sequence[Candidate],
        slots: list[int],
        free: list[Candidate],
        local_region: str | None,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._ring = ring
        self._slots = slots
        self._left = Counter(one.location.region for one in free)
        order = sorted(self._left)
        rng.shuffle(order)
        order.sort(key=lambda region: region != local_region)
        self._order = order

    def best(self) -> dict[int, str] | None:
        """The regions of the slots that are given away; None if none can be."""
        for count in range(min(len(self._slots), self._left.total()), 0, -1):
            soft: dict[int, str] | None = None
            for found in self._rings(count):
                match adherence_of(self._config, _regions_with(self._ring, found)):
                    case Adherence.STRICT:
                        return found
                    case Adherence.SOFT if soft is None:
                        soft = found
                    case _:
                        pass
            if soft is not None:
                return soft
        return None

    def _rings(self, count: int) -> Iterator[dict[int, str]]:
        tried_count = 0
        for slots in itertools.combinations(self._slots, count):
            kept = Counter(
                one.location.region for slot, one in enumerate(self._ring) if slot not in slots
            )
            for found in self._fill(slots, {}, kept, Counter(self._left)):
                yield found
                tried_count += 1
                if tried_count == RINGS_TRIED_MAX:
                    return

    def _fill(
        self,
        slots: Sequence[int],
        found: dict[int, str],
        shares: Counter[str],
        left: Counter[str],
    ) -> Iterator[dict[int, str]]:
        if len(found) == len(slots):
            yield found
            return
        slot = slots[len(found)]
        for region in sorted(self._order, key=lambda region: shares[region]):
            if not left[region]:
                continue
            left[region] -= 1
            shares[region] += 1
            yield from self._fill(slots, {**found, slot: region}, shares, left)
            left[region] += 1
            shares[region] -= 1


def _regions_with(ring: Sequence[Candidate], found: Mapping[int, str]) -> list[str]:
    return [found.get(slot, one.location.region) for slot, one in enumerate(ring)]


def _nodes_of(
    found: Mapping[int, str],
    ring: Sequence[Candidate],
    free: list[Candidate],
    rng: random.Random,
) -> dict[int, str]:
    racks = Counter(one.location for slot, one in enumerate(ring) if slot not in found)
    left = list(free)
    rng.shuffle(left)
    nodes: dict[int, str] = {}
    for slot, region in found.items():
        chosen = min(
            (one for one in left if one.location.region == region),
            key=lambda one: racks[one.location],
        )
        left.remove(chosen)
        racks[chosen.location] += 1
        nodes[slot] = chosen.node
    return nodes
