"""Which nodes a new ledger stands on: regions interleaved round the ring, racks spread within.

A construction that is right whenever shares can be dealt evenly: regions take turns, so each
run of W neighbours on the ring spans as many regions as there are. The complete policies, with
exact search where a construction fails, build on the same values (design section 6).
"""

import enum
import itertools
import random
from collections.abc import Iterable, Sequence

import attrs

from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.location import Location
from topology.quorum import AckRule, Durability, QuorumConfig


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
    for region in sorted(set(regions)):
        left = sum(1 << slot for slot, name in enumerate(regions) if name != region)
        if not rule.acks_all(left):
            return Adherence.SOFT
    return Adherence.STRICT


def choose_ensemble(
    config: QuorumConfig,
    candidates: Iterable[Candidate],
    *,
    local_region: str | None,
    rng: random.Random,
) -> Placement:
    """Choose E distinct nodes, or raise NotEnoughNodesError naming what is missing."""
    by_region = _racks_dealt(sorted(candidates), rng)
    nodes_count = sum(len(nodes) for nodes in by_region.values())
    if nodes_count < config.ensemble_size:
        raise NotEnoughNodesError(
            f"an ensemble of {config.ensemble_size} is asked for, {nodes_count} nodes are up"
            f" ({_census(by_region)})"
        )
    if len(by_region) < config.min_regions:
        raise NotEnoughNodesError(
            f"{config.min_regions} regions are asked for, nodes are up in {len(by_region)}"
            f" ({_census(by_region)})"
        )
    chosen = _dealt_round(by_region, config.ensemble_size, local_region, rng)
    adherence = adherence_of(config, [candidate.location.region for candidate in chosen])
    if adherence is Adherence.FAIL:
        raise NotEnoughNodesError(
            f"no ack set ({config}) fits the nodes that are up ({_census(by_region)})"
        )
    return Placement(tuple(candidate.node for candidate in chosen), adherence)


def _racks_dealt(candidates: list[Candidate], rng: random.Random) -> dict[str, list[Candidate]]:
    """Each region's nodes in the order to take them: shuffled, and racks taking turns."""
    dealt: dict[str, list[Candidate]] = {}
    for region, group in itertools.groupby(candidates, key=lambda one: one.location.region):
        racks: dict[str, list[Candidate]] = {}
        for candidate in group:
            racks.setdefault(candidate.location.rack, []).append(candidate)
        piles = list(racks.values())
        rng.shuffle(piles)
        for pile in piles:
            rng.shuffle(pile)
        turns = itertools.zip_longest(*piles)
        dealt[region] = [one for turn in turns for one in turn if one is not None]
    return dealt


def _dealt_round(
    by_region: dict[str, list[Candidate]],
    ensemble_size: int,
    local_region: str | None,
    rng: random.Random,
) -> list[Candidate]:
    order = sorted(by_region)
    rng.shuffle(order)
    order.sort(key=lambda region: region != local_region)
    turns = itertools.zip_longest(*(by_region[region] for region in order))
    dealt = [one for turn in turns for one in turn if one is not None]
    return dealt[:ensemble_size]


def _census(by_region: dict[str, list[Candidate]]) -> str:
    return (
        ", ".join(f"{region}: {len(nodes)}" for region, nodes in sorted(by_region.items()))
        or "none"
    )


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
    counts: dict[str, int] = {}
    for candidate in candidates:
        counts[candidate.location.region] = counts.get(candidate.location.region, 0) + 1
    if len(counts) < 3:
        raise NotEnoughNodesError(
            f"to survive the loss of 1 region takes nodes in at least 3 regions,"
            f" they are up in {len(counts)} ({', '.join(sorted(counts)) or 'none'})"
        )
    for per_region in (2, 1):
        config = _spread(len(counts), per_region)
        if min(counts.values()) >= per_region and _can_lose_any(config, counts):
            return config
    config = _spread(len(counts), 1)
    raise NotEnoughNodesError(
        f"to survive the loss of 1 region, {config.ensemble_size} nodes must be left in at"
        f" least {config.min_regions} regions after it; up are"
        f" {', '.join(f'{region}: {count}' for region, count in sorted(counts.items()))}"
    )


def _spread(regions_count: int, per_region: int) -> QuorumConfig:
    size = regions_count * per_region
    return QuorumConfig(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=size // 2 + 1,
        min_regions=2,
        durability=Durability.REGIONS,
    )


def _can_lose_any(config: QuorumConfig, counts: dict[str, int]) -> bool:
    for lost in sorted(counts):
        left = {region: count for region, count in counts.items() if region != lost}
        slots = itertools.zip_longest(
            *([region] * count for region, count in sorted(left.items()))
        )
        ring = [region for turn in slots for region in turn if region is not None]
        if len(ring) < config.ensemble_size:
            return False
        if adherence_of(config, ring[: config.ensemble_size]) is Adherence.FAIL:
            return False
    return True
