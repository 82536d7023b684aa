"""Which nodes a new ledger stands on: regions interleaved round the ring, racks spread within.

Rings are found as `topology.ring_search` says: constructed first, then searched for. A search
that runs into its bound says so (`PlacementUndecidedError`), and never that there is none.
"""

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.policy import Placement as Placement
from topology.quorum import QuorumConfig
from topology.quorum_rule import survival_rule
from topology.ring_search import PlacementUndecidedError as PlacementUndecidedError
from topology.ring_search import find_ring, obstacle_of
from topology.window_rule import Adherence as Adherence
from topology.window_rule import Label, WindowRule

_T = TypeVar("_T")


@attrs.frozen(order=True)
class Candidate:
    """A node that may take part: its id and where it stands."""

    node: str
    location: Location


def adherence_of(config: QuorumConfig, regions: Sequence[str]) -> Adherence:
    """How well an ensemble whose slots stand in these regions adheres to the quorums.

    STRICT: each write set keeps an ack set without any one region. SOFT: it has one now.
    """
    assert len(regions) == config.ensemble_size
    return _rule(config).judge([(region,) for region in regions])


def _rule(config: QuorumConfig) -> WindowRule:
    return survival_rule(
        config.write_quorum, config.ack_quorum, config.min_regions, config.durability
    )


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
        labels: dict[Label, int] = {(region,): count for region, count in counts.items()}
        obstacle = obstacle_of(config.ensemble_size, labels, _rule(config), Adherence.SOFT)
        raise NotEnoughNodesError(
            f"no ack set ({config}) fits the nodes that are up ({_census(counts)})"
            + ("" if obstacle is None else f": {obstacle.told('region')}")
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
    labels: dict[Label, int] = {(region,): count for region, count in counts.items()}
    try:
        found = find_ring(config.ensemble_size, labels, _rule(config))
    except PlacementUndecidedError as error:
        raise PlacementUndecidedError(f"{error} ({config}; up are {_census(counts)})") from None
    return None if found is None else [label[0] for label in found[0]]
