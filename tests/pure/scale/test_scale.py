"""The scale model at a size that a test can afford: even shares, and losses that add up."""

import random

import pytest

from sim.scale.layout import Layout
from sim.scale.loss import RepairConfig, losses
from sim.scale.spread import place_many, spread_of
from topology.errors import InvalidArgumentError
from topology.location import Location
from topology.policies.region_aware import RegionAware
from topology.policy import PlacementRequest
from topology.tree import Weighting

LAYOUT = Layout(nodes=400, regions=10, racks_per_region=4)
REQUEST = PlacementRequest(ensemble_size=5, write_quorum=5, ack_quorum=3)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_ensembles_spread_evenly_over_regions_and_racks(*, is_weighted: bool) -> None:
    members = LAYOUT.membership(is_weighted=is_weighted)
    policy = RegionAware(
        default_location=Location("unknown", "unknown"),
        weighting=Weighting(3.0) if is_weighted else None,
    )

    tally = place_many(policy, members, REQUEST, 8_000, random.Random(1))
    spread = spread_of(tally, members, is_weighted=is_weighted)

    assert sum(tally.by_node.values()) == 40_000
    assert spread.region_deviation_max < 0.04
    assert spread.rack_deviation_max < 0.15


def test_the_cost_of_a_lost_rack_or_region_follows_from_its_entries() -> None:
    members = LAYOUT.membership(is_weighted=False)
    policy = RegionAware(default_location=Location("unknown", "unknown"))
    tally = place_many(policy, members, REQUEST, 400, random.Random(2))

    rack, region = losses(
        tally, members, RepairConfig(bytes_per_fragment=1_000, node_bytes_per_s=10.0)
    )

    assert (rack.nodes, region.nodes) == (10, 40)
    assert region.bytes_to_copy == region.fragments_hurt * 1_000
    assert region.seconds == pytest.approx(region.bytes_to_copy / (360 * 10.0))
    assert region.fragments_hurt_share == pytest.approx(0.1, rel=0.25)


def test_an_impossible_layout_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the fewest are 1000"):
        Layout(nodes=10)
