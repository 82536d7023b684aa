"""Conditions of WAN links, and the refusal of impossible changes."""

import math

import pytest

from sim.processes.wan.conditions import ALL, Conditions, LinkChange, Wan
from sim.processes.wan.profile import default_wan
from topology.errors import InvalidArgumentError, NotFoundError

REGIONS = ("us", "eu", "ap")


def wan() -> Wan:
    return Wan.between(REGIONS)


def test_a_round_trip_is_split_between_the_two_directions() -> None:
    changed = wan().changed("us", "eu", LinkChange(rtt_s=0.08, jitter_s=0.01), is_one_way=False)

    for direction in (("us", "eu"), ("eu", "us")):
        assert changed.directions[direction] == Conditions(delay_s=0.04, jitter_s=0.005)
    assert changed.directions["us", "ap"] == Conditions()


def test_one_way_changes_only_the_direction_named() -> None:
    changed = wan().changed("us", "eu", LinkChange(is_cut=True), is_one_way=True)

    cut = [each for each, conditions in changed.directions.items() if conditions.is_cut]
    assert cut == [("us", "eu")]


def test_a_change_keeps_the_values_that_it_does_not_name() -> None:
    first = wan().changed("us", "eu", LinkChange(rtt_s=0.08, stall_rate=0.01), is_one_way=False)
    second = first.changed("us", "eu", LinkChange(bandwidth_bytes_per_s=20e6), is_one_way=False)

    assert second.directions["us", "eu"] == Conditions(
        delay_s=0.04, stall_rate=0.01, bandwidth_bytes_per_s=20e6
    )


@pytest.mark.parametrize(
    ("here", "there", "ways", "count"),
    [("us", ALL, 2, 4), ("us", ALL, 1, 2), (ALL, "us", 1, 2), (ALL, ALL, 2, 6)],
)
def test_all_stands_for_each_region(here: str, there: str, ways: int, count: int) -> None:
    changed = wan().changed(here, there, LinkChange(is_cut=True), is_one_way=ways == 1)

    assert sum(conditions.is_cut for conditions in changed.directions.values()) == count


@pytest.mark.parametrize(("here", "there"), [("us", "mars"), ("mars", ALL), ("us", "us")])
def test_an_unknown_link_is_refused_with_the_known_regions(here: str, there: str) -> None:
    with pytest.raises(NotFoundError, match=f"no link {here}-{there}"):
        wan().changed(here, there, LinkChange(is_cut=True), is_one_way=False)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (LinkChange(rtt_s=-0.08), "the round trip must be 0 to .*, got -0.08s"),
        (LinkChange(rtt_s=math.nan), "the round trip must be .*, got nan"),
        (LinkChange(rtt_s=math.inf), "the round trip must be .*, got inf"),
        (
            LinkChange(rtt_s=0.01, jitter_s=0.02),
            "the jitter must be 0s to 0.01s, the round trip, got 0.02s",
        ),
        (LinkChange(jitter_s=-0.01), "the jitter must be 0s to .*, got -0.01s"),
        (LinkChange(bandwidth_bytes_per_s=0), "the bandwidth must be .*, got 0 B/s"),
        (LinkChange(stall_rate=1.5), "the stall rate must be .*, got 150%"),
        (LinkChange(stall_s=-1), "the stall must be .*, got -1s"),
    ],
)
def test_impossible_conditions_are_refused(change: LinkChange, complaint: str) -> None:
    with pytest.raises(InvalidArgumentError, match=complaint):
        wan().changed("us", "eu", change, is_one_way=False)


def test_a_change_that_is_impossible_for_one_of_several_links_changes_none() -> None:
    before = wan().changed("us", "eu", LinkChange(rtt_s=0.08), is_one_way=False)

    with pytest.raises(InvalidArgumentError):
        before.changed(ALL, ALL, LinkChange(jitter_s=0.02), is_one_way=False)

    assert all(not each.jitter_s for each in before.directions.values())


def test_an_empty_change_reports_that_it_is_empty() -> None:
    assert LinkChange().is_nothing
    assert not LinkChange(is_cut=False).is_nothing


def test_the_demo_has_intercontinental_round_trips() -> None:
    directions = default_wan(("us-east", "eu-west", "ap-northeast", "moon")).directions

    assert directions["us-east", "eu-west"].delay_s == directions["eu-west", "us-east"].delay_s
    assert 2 * directions["us-east", "eu-west"].delay_s == pytest.approx(0.080)
    assert 2 * directions["ap-northeast", "us-east"].delay_s == pytest.approx(0.150)
    assert 2 * directions["eu-west", "ap-northeast"].delay_s == pytest.approx(0.220)
    assert 2 * directions["eu-west", "moon"].delay_s == pytest.approx(0.100)


def test_an_append_waits_for_the_nearest_other_region() -> None:
    demo = default_wan(("us-east", "eu-west", "ap-northeast"))

    assert demo.nearest_s("eu-west") == pytest.approx(0.080)
    assert demo.nearest_s("eu-west", without="us-east") == pytest.approx(0.220)
    assert Wan.between(("alone",)).nearest_s("alone") is None
