"""Judgement of a fragment: as placed, as it is now, and the reasons."""

import pytest

from geolog.protocol.fragment_placement import MemberState, judge_fragment
from tests.pure.protocol.fragment_layouts import layout
from topology.stream_policy import PlacementTerms, PolicyKind


@pytest.mark.parametrize(
    ("nodes", "placed", "now"),
    [
        ("aabbcc", "strict", "strict"),
        ("aabbcc-", "strict", "soft"),
        ("aabbc*c*", "strict", "strict"),
        ("aabbcx c", "soft", "soft"),
        ("aaabbb", "soft", "soft"),
        ("aaab-b-b-", "soft", "fail"),
        ("aaaaaa", "fail", "fail"),
    ],
)
def test_nodes_that_are_down_count_as_placed_but_not_now(
    nodes: str, placed: str, now: str
) -> None:
    one = layout(nodes, ack=4)

    verdict = judge_fragment(one.seen, one.record, one.fragment)

    assert (verdict.placed.value, verdict.now.value) == (placed, now)


def test_a_disk_that_was_given_up_counts_for_nothing_and_is_named() -> None:
    one = layout("aabbccx", ack=4)

    verdict = judge_fragment(one.seen, one.record, one.fragment)

    assert verdict.states[-1] is MemberState.REPLACED
    assert "the disk of node-c1 was given up" in verdict.why
    assert not verdict.is_good


def test_a_disk_given_up_needs_repair_however_well_the_others_adhere() -> None:
    one = layout("aabbccddx", ack=4)

    verdict = judge_fragment(one.seen, one.record, one.fragment)

    assert (verdict.placed.value, verdict.is_good) == ("strict", False)


def test_the_reason_names_the_regions_at_fault() -> None:
    def why(nodes: str) -> str:
        one = layout(nodes, ack=4)
        return judge_fragment(one.seen, one.record, one.fragment).why

    assert why("aabbcc") == ""
    assert why("aaabbb") == "losing region a or b leaves no ack set"
    assert why("aaaabc") == "losing region a leaves no ack set"
    assert why("aaaaaa") == "it has no ack set (E 6 W 6 A 4 m 2 (regions))"


def test_a_stream_with_a_home_is_not_blamed_for_its_only_region() -> None:
    terms = PlacementTerms(policy=PolicyKind.RACK_AWARE, min_racks=3, region="a")
    one = layout("aaa", ack=2, min_regions=1, terms=terms)

    verdict = judge_fragment(one.seen, one.record, one.fragment)

    assert verdict.placed.value == "soft"
    assert verdict.why.startswith("its members are in /a/")


def test_a_fragment_is_judged_by_its_own_policy() -> None:
    racks = PlacementTerms(policy=PolicyKind.RACK_AWARE, min_racks=2)
    # The racks of a region alternate.
    two = layout("aaa", ack=2, min_regions=1, terms=racks)
    anywhere = layout(
        "aaa", ack=2, min_regions=1, terms=PlacementTerms(policy=PolicyKind.DEFAULT)
    )

    assert judge_fragment(two.seen, two.record, two.fragment).placed.value == "strict"
    assert judge_fragment(anywhere.seen, anywhere.record, anywhere.fragment).is_good


def test_an_unknown_node_counts_as_down() -> None:
    one, other = layout("aabbcc", ack=4), layout("aabb", ack=3)

    verdict = judge_fragment(other.seen, one.record, one.fragment)

    assert verdict.states[-1] is MemberState.DOWN


def test_the_promise_of_a_stream_is_judged_as_well_as_its_policy() -> None:
    def verdict(nodes: str, survive: str) -> tuple[str, bool, str]:
        one = layout(nodes, ack=6, min_regions=3)
        found = judge_fragment(one.seen, one.record, one.fragment, survive)
        return found.placed.value, found.is_good, found.why

    assert verdict("aabbccddee", "2 regions") == ("strict", True, "")
    assert verdict("aaabbccdde", "") == ("strict", True, "")
    assert verdict("aaabbccdde", "2 regions") == (
        "strict",
        False,
        "without region a and region b no ack set is left, which breaks the promise to survive"
        " '2 regions'",
    )
    # A disk that was given up does not count as a copy.
    assert not verdict("aabbccddxe", "2 regions")[1]
