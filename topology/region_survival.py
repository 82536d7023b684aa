"""Whether a stream survives losing a region, and the sizes that make it so.

Sizes left out are chosen as the promise `1 region` would choose them, around those that are
given. The policy itself decides, tried on the nodes: STRICT now, with an ack set left and no
entry lost without any one region, and a new ensemble still possible after that.

Rules: PROTOCOL P8.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.membership import KnownNode, Membership, MembershipConfig
from topology.policy import Placement, PlacementRequest
from topology.promise import promise_broken
from topology.quorum import ENSEMBLE_SIZE_MAX, Durability, QuorumConfig, ack_quorum_smallest
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence
from topology.stream_policy import DEFAULT_LOCATION, PlacementTerms, PolicyKind, policy_of
from topology.survive import Loss

ONE_REGION = Loss(1, "region")

_REGIONS_MIN = 3
"""With two regions, one holds at least half of the copies: without it either no ack set is
left, or its half alone could have acknowledged an entry."""

_MEMBERSHIP = MembershipConfig(default_location=DEFAULT_LOCATION)


@attrs.frozen(kw_only=True)
class SizesGiven:
    """The requested sizes; None was left out."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    min_regions: int | None = None
    durability: Durability = Durability.REGIONS

    @property
    def is_complete(self) -> bool:
        """Whether no size was left out."""
        return None not in (
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            self.min_regions,
        )


def complete_sizes(
    given: SizesGiven, terms: PlacementTerms, nodes: Sequence[KnownNode]
) -> QuorumConfig | None:
    """Fill in omitted sizes so that any one region can be lost; None where nothing does.

    `nodes` are those that may hold ledgers, each of them writable.
    """
    if why_policy_does_not(terms):
        return None
    counts = Counter(node.location.region for node in nodes)
    for config in _configs(given, counts):
        if not why_not_without_a_region(config, terms, nodes):
            return config
    return None


def why_policy_does_not(terms: PlacementTerms) -> str:
    """Why no stream of this policy survives losing a region for certain; empty if some do."""
    name = terms.name
    if terms.region is not None:
        return f"all copies are in region {terms.region}"
    match terms.policy:
        case PolicyKind.REGION_AWARE | PolicyKind.ZONE_AWARE:
            return ""
        case PolicyKind.LOCAL_NODE:
            return f"policy {name!r} keeps the only copy of an entry on one node"
        case PolicyKind.OWN:
            return f"policy {name!r} is not one of geolog's, so nothing is promised for it"
        case _:
            return f"policy {name!r} ignores regions"


def why_not_without_a_region(
    config: QuorumConfig, terms: PlacementTerms, nodes: Sequence[KnownNode]
) -> str:
    """Why the stream would not survive losing a region; empty if it does."""
    if why := why_policy_does_not(terms):
        return why
    counts = Counter(node.location.region for node in nodes)
    if len(counts) < _REGIONS_MIN:
        named = ", ".join(sorted(counts)) or "none"
        return f"nodes in {_REGIONS_MIN} regions are needed; there are {len(counts)} ({named})"
    placed = _placed(config, terms, nodes)
    if placed is None:
        return f"no ensemble of {config.ensemble_size} fits the nodes ({_census(counts)})"
    places = {node.node: node.location for node in nodes}
    ring = tuple(places[node] for node in placed.nodes)
    broken = promise_broken(ONE_REGION, config, ring)
    if broken is not None:
        return f"{broken} ({config}; nodes: {_census(counts)})"
    if placed.adherence is not Adherence.STRICT:
        return (
            f"policy {terms.name!r} places it only as {placed.adherence.value}"
            f" ({config}; nodes: {_census(counts)})"
        )
    for region in sorted(counts):
        left = [node for node in nodes if node.location.region != region]
        if _placed(config, terms, left) is None:
            return (
                f"without region {region}, no new ensemble of {config.ensemble_size} fits the"
                f" {len(left)} remaining nodes ({config}; nodes: {_census(counts)})"
            )
    return ""


def _placed(
    config: QuorumConfig, terms: PlacementTerms, nodes: Sequence[KnownNode]
) -> Placement | None:
    """A new ensemble on these nodes; None if there is none, or none was found."""
    if len(nodes) < config.ensemble_size:
        return None
    request = PlacementRequest(
        ensemble_size=config.ensemble_size,
        write_quorum=config.write_quorum,
        ack_quorum=config.ack_quorum,
    )
    try:
        return policy_of(terms, config).new_ensemble(
            Membership.of(_MEMBERSHIP, nodes), request, random.Random(0)
        )
    except (NotEnoughNodesError, InvalidArgumentError, PlacementUndecidedError):
        return None


def _configs(given: SizesGiven, counts: Mapping[str, int]) -> Iterator[QuorumConfig]:
    """Candidates, best first; all are legal and may survive by the numbers."""
    if len(counts) < _REGIONS_MIN:
        return
    # More is never needed: copies that outlive any one region are in two.
    min_regions = 2 if given.min_regions is None else given.min_regions
    for size, write in _ensembles(given, counts):
        for ack in _ack_quorums(given, write, min_regions):
            # Without a region that holds its share, at most this many copies are left.
            if ack > write - -(-write // len(counts)):
                continue
            try:
                yield QuorumConfig(
                    ensemble_size=size,
                    write_quorum=write,
                    ack_quorum=ack,
                    min_regions=min_regions,
                    durability=given.durability,
                )
            except InvalidArgumentError:
                continue


def _ensembles(given: SizesGiven, counts: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """E and W: whole ensembles, unless other sizes are given, or m of 1 needs narrower sets."""
    largest = min(sum(counts.values()) - max(counts.values()), ENSEMBLE_SIZE_MAX)
    size, write = given.ensemble_size, given.write_quorum
    if size is not None and write is not None:
        yield size, write
    elif write is not None:
        yield write, write
    elif size is not None:
        yield from ((size, narrower) for narrower in range(size, 0, -1))
    else:
        regions = len(counts)
        sizes = (2 * regions, regions, *range(_REGIONS_MIN, largest + 1))
        yield from ((one, one) for one in dict.fromkeys(sizes) if one <= largest)


def _ack_quorums(given: SizesGiven, write: int, min_regions: int) -> Iterator[int]:
    """A majority; the smallest legal number where a majority is too many to be left."""
    if given.ack_quorum is not None:
        yield given.ack_quorum
        return
    smallest = ack_quorum_smallest(write, min_regions, given.durability)
    yield from dict.fromkeys((max(write // 2 + 1, smallest), smallest))


def _census(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{region}: {counts[region]}" for region in sorted(counts))
