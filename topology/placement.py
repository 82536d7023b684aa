"""Which nodes a new ledger stands on: regions interleaved round the ring, racks spread within.

Regions are dealt in turns first. That is as even as the nodes that are up allow, so where a
write set is the whole ensemble nothing can adhere better. Where write sets are windows of a
larger ring and regions are of unequal size, turns run out and the rest of the ring would fall
to one region; then a bounded exact search looks for an order of the regions that adheres. If it
runs into its bound it says so (`PlacementUndecidedError`), and never that there is none.
"""

import enum
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.location import Location
from topology.quorum import ENSEMBLE_SIZE_MAX, AckRule, Durability, QuorumConfig

_T = TypeVar("_T")

SEARCH_STEPS_MAX = 5_000
"""Slots filled by one search before it gives up: at most about 0.1 s."""


class PlacementUndecidedError(NotEnoughNodesError):
    """The search for an ensemble was cut off at its bound: more or other nodes would help."""


class Adherence(enum.Enum):
    """STRICT: each write set keeps an ack set without any one region. SOFT: it has one now."""

    STRICT = "strict"
    SOFT = "soft"
    FAIL = "fail"


@attrs.frozen(order=True)
class Candidate:
    """A node that may take part: its id and where it stands."""

    node: str
    location: Location


@attrs.frozen
class Placement:
    """The chosen nodes, in ring order, and how well they adhere."""

    nodes: tuple[str, ...]
    adherence: Adherence


def adherence_of(config: QuorumConfig, regions: Sequence[str]) -> Adherence:
    """How well an ensemble whose slots stand in these regions adheres to the quorums."""
    rule = AckRule(config, regions)
    if not rule.acks_all((1 << len(regions)) - 1):
        return Adherence.FAIL
    if config.durability is Durability.COUNT and not all(
        _counts_for_regions(config, Counter(regions[slot] for slot in rule.write_set(offset)))
        for offset in range(len(regions))
    ):
        return Adherence.FAIL
    for region in sorted(set(regions)):
        left = sum(1 << slot for slot, name in enumerate(regions) if name != region)
        if not rule.acks_all(left):
            return Adherence.SOFT
    return Adherence.STRICT


def _counts_for_regions(config: QuorumConfig, window: Counter[str]) -> bool:
    """Whether no A nodes of a write set with these shares lie in fewer than m regions."""
    fewer = config.min_regions - 1
    return sum(sorted(window.values(), reverse=True)[:fewer]) < config.ack_quorum


def choose_ensemble(
    config: QuorumConfig,
    candidates: Iterable[Candidate],
    *,
    local_region: str | None,
    rng: random.Random,
) -> Placement:
    """Choose E distinct nodes, or raise NotEnoughNodesError naming what is missing."""
    distinct = sorted(set(candidates))
    assert len({one.node for one in distinct}) == len(distinct), "a node stands in one place"
    by_region = _racks_dealt(distinct, rng)
    counts = {region: len(nodes) for region, nodes in by_region.items()}
    if sum(counts.values()) < config.ensemble_size:
        raise NotEnoughNodesError(
            f"an ensemble of {config.ensemble_size} is asked for, {sum(counts.values())} nodes"
            f" are up and writable ({_census(counts)}): start more, or ask for a smaller one"
        )
    if len(counts) < config.min_regions:
        raise NotEnoughNodesError(
            f"{config.min_regions} regions are asked for, nodes are up in {len(counts)}"
            f" ({_census(counts)}): start nodes in others, or ask for fewer"
        )
    order = sorted(counts)
    rng.shuffle(order)
    order.sort(key=lambda region: region != local_region)
    ring = arrange_regions(config, {region: counts[region] for region in order})
    if ring is None:
        raise NotEnoughNodesError(
            f"no ack set ({config}) fits the nodes that are up ({_census(counts)})"
        )
    piles = {region: iter(nodes) for region, nodes in by_region.items()}
    nodes = tuple(next(piles[region]).node for region in ring)
    return Placement(nodes, adherence_of(config, ring))


def _racks_dealt(candidates: list[Candidate], rng: random.Random) -> dict[str, list[Candidate]]:
    """Each region's nodes in the order to take them: shuffled, and racks taking turns."""
    racks: dict[str, dict[str, list[Candidate]]] = {}
    for candidate in candidates:
        region, rack = candidate.location.region, candidate.location.rack
        racks.setdefault(region, {}).setdefault(rack, []).append(candidate)
    dealt: dict[str, list[Candidate]] = {}
    for region in sorted(racks):
        piles = [racks[region][rack] for rack in sorted(racks[region])]
        rng.shuffle(piles)
        for pile in piles:
            rng.shuffle(pile)
        dealt[region] = _in_turns(piles)
    return dealt


def _in_turns(piles: Iterable[Iterable[_T]]) -> list[_T]:
    """One of each pile, then the next of each, until all are used up."""
    turns = itertools.zip_longest(*piles)
    return [one for turn in turns for one in turn if one is not None]


def _census(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{region}: {counts[region]}" for region in sorted(counts)) or "none"


# ---------------------------------------------------------------- the order of the regions


def arrange_regions(config: QuorumConfig, counts: Mapping[str, int]) -> list[str] | None:
    """The region of each slot: STRICT if that can be, else SOFT; None if there is no order.

    `counts` says how many nodes each region has; regions named first are served first.
    """
    turns = _in_turns([region] * count for region, count in counts.items())
    dealt = turns[: config.ensemble_size]
    if len(dealt) < config.ensemble_size:
        return None
    adherence = adherence_of(config, dealt)
    if adherence is Adherence.STRICT:
        return dealt
    if config.write_quorum == config.ensemble_size:
        # Every write set is the whole ensemble, and no other shares are more even than these.
        return None if adherence is Adherence.FAIL else dealt
    strict = _RingSearch(config, counts, Adherence.STRICT)
    ring = strict.run()
    if ring is not None:
        return ring
    if adherence is Adherence.SOFT:
        return dealt
    soft = _RingSearch(config, counts, Adherence.SOFT)
    ring = soft.run()
    if ring is None and soft.is_cut_off:
        raise PlacementUndecidedError(
            f"no ensemble ({config}) was found within {SEARCH_STEPS_MAX} steps for the nodes"
            f" that are up ({_census(counts)}), though there may be one"
        )
    return ring


class _RingSearch:
    """Fills the ring slot by slot and turns back where a write set can no longer adhere."""

    def __init__(
        self, config: QuorumConfig, counts: Mapping[str, int], wanted: Adherence
    ) -> None:
        self._config = config
        self._left = dict(counts)
        self._is_strict = wanted is Adherence.STRICT
        # How many regions a write set must span, and all that one may hold of it.
        self._regions_min = config.min_regions + (1 if self._is_strict else 0)
        self._share_max = config.write_quorum - (
            config.ack_quorum if self._is_strict else self._regions_min - 1
        )
        self._ring: list[str] = []
        self._steps = 0
        self.is_cut_off = False

    def run(self) -> list[str] | None:
        """The first ring that adheres as wanted; None if there is none, or if it is cut off."""
        config = self._config
        # Each slot is in W of the E write sets, so a region has at most E * share / W slots.
        share = config.ensemble_size * self._share_max // config.write_quorum
        room = sum(min(count, share) for count in self._left.values())
        if room < config.ensemble_size or len(self._left) < self._regions_min:
            return None
        return self._ring if self._fill() else None

    def _fill(self) -> bool:
        if len(self._ring) == self._config.ensemble_size:
            good = (
                (Adherence.STRICT,) if self._is_strict else (Adherence.STRICT, Adherence.SOFT)
            )
            return adherence_of(self._config, self._ring) in good
        for region in self._next_regions():
            self._steps += 1
            if self._steps > SEARCH_STEPS_MAX:
                self.is_cut_off = True
                return False
            self._ring.append(region)
            self._left[region] -= 1
            if self._can_adhere() and self._fill():
                return True
            self._ring.pop()
            self._left[region] += 1
        return False

    def _next_regions(self) -> list[str]:
        """Regions with nodes left, the fullest first: it is the hardest to place later."""
        recent = Counter(self._ring[-(self._config.write_quorum - 1) :])
        regions = [region for region, count in self._left.items() if count]
        return sorted(regions, key=lambda region: (-self._left[region], recent[region]))

    def _can_adhere(self) -> bool:
        """Whether the write set that ends at the last slot, full or not yet, can adhere."""
        window = Counter(self._ring[-self._config.write_quorum :])
        missing = self._config.write_quorum - window.total()
        if max(window.values()) > self._share_max:
            return False
        if len(window) + missing < self._regions_min:
            return False
        return self._config.durability is Durability.REGIONS or _counts_for_regions(
            self._config, window
        )


# ---------------------------------------------------------------- quorums from a promise


def quorums_to_survive(survive: str, candidates: Iterable[Candidate]) -> QuorumConfig:
    """Derive E, W, A and m for `survive = "1 region"` from the nodes that are up.

    Refused unless, with any one region gone, a new ensemble can still be placed, and an ack set
    and a blocking set still exist in every write set.
    """
    if " ".join(survive.split()) not in ("1 region", "one region"):
        raise InvalidArgumentError(
            f"survive {survive!r} is not known; what can be asked for is '1 region'"
            " (or give the quorums: ensemble size, write quorum, ack quorum, min regions)"
        )
    counts = Counter(candidate.location.region for candidate in sorted(set(candidates)))
    if len(counts) < 3:
        raise NotEnoughNodesError(
            f"to survive the loss of 1 region takes nodes in at least 3 regions,"
            f" they are up in {len(counts)} ({', '.join(sorted(counts)) or 'none'}):"
            " start nodes in others, or give the quorum sizes"
        )
    # Two copies in each region, else one in each, else one in each of any three.
    for size in (2 * len(counts), len(counts), 3):
        if size <= ENSEMBLE_SIZE_MAX and _can_lose_any(_copies(size), counts):
            return _copies(size)
    smallest = _copies(3)
    raise NotEnoughNodesError(
        f"to survive the loss of 1 region, {smallest.ensemble_size} nodes must be left in at"
        f" least {smallest.min_regions} regions after it; up are {_census(counts)}: start"
        " more, or give the quorum sizes"
    )


def _copies(size: int) -> QuorumConfig:
    return QuorumConfig(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=size // 2 + 1,
        min_regions=2,
        durability=Durability.REGIONS,
    )


def _can_lose_any(config: QuorumConfig, counts: Mapping[str, int]) -> bool:
    ring = arrange_regions(config, counts)
    if ring is None or adherence_of(config, ring) is not Adherence.STRICT:
        return False
    return all(
        arrange_regions(config, {name: counts[name] for name in counts if name != lost})
        is not None
        for lost in counts
    )
