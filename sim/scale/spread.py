"""Places many ensembles, and measures how far regions and racks are from ideal shares."""

import random
from collections import Counter
from collections.abc import Mapping

import attrs

from topology.location import Location
from topology.membership import Membership
from topology.policies.region_aware import RegionAware
from topology.policy import PlacementRequest


@attrs.frozen(kw_only=True)
class Spread:
    """Shares over all ensembles, relative to the ideal: 0.05 means 5 % off."""

    ensembles: int
    region_deviation_max: float
    rack_deviation_max: float


@attrs.frozen
class Tally:
    """How often each node was chosen."""

    ensembles: int
    by_node: Mapping[str, int]


def place_many(
    policy: RegionAware,
    members: Membership,
    request: PlacementRequest,
    ensembles: int,
    rng: random.Random,
) -> Tally:
    """Place this many ensembles."""
    counts: Counter[str] = Counter()
    for _ in range(ensembles):
        counts.update(policy.new_ensemble(members, request, rng).nodes)
    return Tally(ensembles, counts)


def spread_of(tally: Tally, members: Membership, *, is_weighted: bool) -> Spread:
    """How far the fullest and the emptiest region and rack are from their ideal shares.

    Regions should have equal shares; the racks of a region share by nodes, or by free space.
    """
    regions: Counter[str] = Counter()
    racks: Counter[Location] = Counter()
    weights: Counter[Location] = Counter()
    weights_of_regions: Counter[str] = Counter()
    for one in members.members.values():
        count, weight = tally.by_node.get(one.node, 0), one.free_bytes if is_weighted else 1
        regions[one.location.region] += count
        racks[one.location] += count
        weights[one.location] += weight
        weights_of_regions[one.location.region] += weight
    ideal_region = regions.total() / len(regions)
    return Spread(
        ensembles=tally.ensembles,
        region_deviation_max=max(abs(count / ideal_region - 1) for count in regions.values()),
        rack_deviation_max=max(
            abs(count / (ideal_region * weights[rack] / weights_of_regions[rack.region]) - 1)
            for rack, count in racks.items()
        ),
    )
