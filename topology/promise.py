"""Whether an ensemble, as it is, keeps what a stream was promised to survive.

A promise holds when, whichever domains (and further nodes) are lost, every write set still has
an ack set, and the lost nodes are not an ack set: acknowledged entries remain, and the ledger
can be taken over.

Rules: PROTOCOL P12.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

import attrs

from topology.location import Location
from topology.policies.region_aware import RegionAware
from topology.policy import PlacementPolicy
from topology.quorum import AckRule, QuorumConfig
from topology.survive import Loss

_SHAPES_MAX = 4_096
"""Ensembles to remember: most ledgers of a stream have the same placement."""


@lru_cache(maxsize=_SHAPES_MAX)
def promise_broken(
    loss: Loss, quorum: QuorumConfig, places: tuple[Location | None, ...]
) -> str | None:
    """The loss that an ensemble at these locations does not survive, and why; None if none.

    One location for each slot, each of a node of its own; None is a slot whose node is lost for
    good.
    """
    there = sum(1 << slot for slot, place in enumerate(places) if place is not None)
    rule = AckRule(quorum, ["" if place is None else place.region for place in places])
    for names, lost in _losses(loss, places):
        what = f"without {' and '.join(names)}"
        if not rule.acks_all(there & ~lost):
            return f"{what} no ack set is left"
        if any(rule.is_ack(entry, lost) for entry in range(quorum.ensemble_size)):
            return f"{what} an entry may be lost"
    return None


def policy_keeping(policy: PlacementPolicy, survive: str) -> PlacementPolicy:
    """The policy whose STRICT means that the promise is kept; `survive` may be empty.

    Only promises of more than one region demand more than the policies' own STRICT.
    """
    loss = Loss.parse(survive) if survive else None
    if loss is None or loss.kind != "region" or not isinstance(policy, RegionAware):
        return policy
    return attrs.evolve(policy, regions_lost=loss.domains, nodes_lost=loss.nodes)


def _losses(
    loss: Loss, places: Sequence[Location | None]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Possible losses, by name, with the masks of their slots."""
    domains: dict[str, int] = {}
    for slot, place in enumerate(places):
        if place is not None:
            name = _domain(loss.kind, slot, place)
            domains[name] = domains.get(name, 0) | 1 << slot
    count = min(loss.domains, len(domains))
    for names in itertools.combinations(sorted(domains), count):
        lost = sum(domains[name] for name in names)
        others = [
            slot
            for slot, place in enumerate(places)
            if place is not None and not lost >> slot & 1
        ]
        for slots in itertools.combinations(others, min(loss.nodes, len(others))):
            told = tuple(f"the node of slot {slot}" for slot in slots)
            yield (*names, *told), lost | sum(1 << slot for slot in slots)


def _domain(kind: str, slot: int, place: Location) -> str:
    match kind:
        case "node":
            return f"the node of slot {slot}"
        case "rack":
            return f"rack {place}"
        case _:
            return f"region {place.region}"
