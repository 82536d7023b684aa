"""How well the regions of a ring keep quorums, and which order of regions keeps them best.

`topology.ring.search` finds rings: by construction first, then by search. A search that reaches
its bound says so (`PlacementUndecidedError`); it never claims that there is no ring.

Rules: PROTOCOL P1.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import attrs

from topology.location import Location
from topology.policy import Placement as Placement
from topology.quorum import QuorumConfig
from topology.quorum_rule import survival_rule
from topology.ring.search import PlacementUndecidedError as PlacementUndecidedError
from topology.ring.search import find_ring
from topology.ring.window_rule import Adherence as Adherence
from topology.ring.window_rule import Label, WindowRule

_T = TypeVar("_T")


@attrs.frozen(order=True)
class Candidate:
    """A node that may take part: its id and location."""

    node: str
    location: Location


def adherence_of(config: QuorumConfig, regions: Sequence[str]) -> Adherence:
    """How well an ensemble with slots in these regions adheres to the quorums.

    STRICT: each write set keeps an ack set without any one region. SOFT: it has one now.
    """
    assert len(regions) == config.ensemble_size
    return _rule(config).judge([(region,) for region in regions])


def _rule(config: QuorumConfig) -> WindowRule:
    return survival_rule(
        config.write_quorum, config.ack_quorum, config.min_regions, config.durability
    )


def _census(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{region}: {counts[region]}" for region in sorted(counts)) or "none"


# ---------------------------------------------------------------- the order of the regions


def arrange_regions(config: QuorumConfig, counts: Mapping[str, int]) -> list[str] | None:
    """The region of each slot: STRICT if possible, else SOFT; None if there is no such order.

    `counts` is the number of nodes in each region; regions named first are served first.
    """
    labels: dict[Label, int] = {(region,): count for region, count in counts.items()}
    try:
        found = find_ring(config.ensemble_size, labels, _rule(config))
    except PlacementUndecidedError as error:
        raise PlacementUndecidedError(
            f"{error} ({config}; nodes up: {_census(counts)})"
        ) from None
    return None if found is None else [label[0] for label in found.labels]
