"""The effect of forbidding regions on the new ledgers of a stream."""

import pytest

from geolog.admin.placement.new_ledgers import NewLedgers, judge_new_ledgers
from tests.pure.admin.test_health import THREE, nodes_of
from topology.quorum import Durability, QuorumConfig
from topology.stream_policy import PlacementTerms
from topology.switches import PlacementSwitches

ODD = QuorumConfig(
    ensemble_size=23,
    write_quorum=7,
    ack_quorum=6,
    min_regions=3,
    durability=Durability.COUNT,
)
"""Sizes for which the search over uneven regions is cut off."""


@pytest.mark.parametrize(
    ("census", "forbidden", "quorum", "expected"),
    [
        ("abcd", "d", THREE, NewLedgers.STRICT),
        ("aabb", "", THREE, NewLedgers.LESS_SAFE),
        ("abcd", "cd", THREE, NewLedgers.WITHOUT_PLACE),
        ("a" * 24 + "b" * 8 + "c" * 5 + "d" * 2 + "e" * 9, "e", ODD, NewLedgers.UNDECIDED),
    ],
)
def test_a_search_that_is_cut_off_differs_from_a_no(
    census: str, forbidden: str, quorum: QuorumConfig, expected: NewLedgers
) -> None:
    switches = PlacementSwitches(frozenset(forbidden))

    found = judge_new_ledgers(PlacementTerms(), quorum, nodes_of(census), switches)

    assert found is expected
