"""The order of reads from replicas: the table of both orders, and properties."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.read_order import (
    NodeHealth,
    bookkeeper_order,
    seed_order,
    sticky_index,
    with_rest,
)

STATES = {
    "w": NodeUse.WRITABLE,
    "r": NodeUse.READONLY,
    "d": NodeUse.DOWN,
    "n": NodeUse.NEVER_REGISTERED,
}


def ring(text: str) -> tuple[Membership, list[str]]:
    """`a1w b2r`: node n0 in rack 1 of region a, writable; n1 in rack 2 of b, read-only."""
    members = [
        KnownNode(node=f"n{at}", location=Location(word[0], word[1]), state=STATES[word[2]])
        for at, word in enumerate(text.split())
    ]
    config = MembershipConfig(default_location=Location("u", "u"))
    return Membership.of(config, members), [one.node for one in members]


def by_bookkeeper(text: str, region: str | None, health: NodeHealth | None = None) -> list[int]:
    members, ensemble = ring(text)
    return bookkeeper_order(
        members, ensemble, range(len(ensemble)), health or NodeHealth(), region
    )


@pytest.mark.parametrize(
    ("text", "region", "expected"),
    [
        ("a1w b1w a2w a3w b2w", "a", [0, 2, 1, 3, 4]),
        ("b1w b2w a1w", "a", [2, 0, 1]),
        ("b1w b2w", "a", [0, 1]),
        ("a1d a2r a3w b1w", "a", [2, 3, 1, 0]),
        ("a1r a2w", None, [0, 1]),
        ("a1d a2r a3w", None, [2, 1, 0]),
        ("a1n a2n", None, [0, 1]),
    ],
)
def test_bookkeepers_order(text: str, region: str | None, expected: list[int]) -> None:
    assert by_bookkeeper(text, region) == expected


def test_nodes_that_failed_long_ago_come_before_recent_failures() -> None:
    health = NodeHealth(
        slow=frozenset({"n3", "n4"}),
        pending={"n3": 9, "n4": 2},
        failed_at_entry={"n0": 20, "n1": 10},
    )

    assert by_bookkeeper("a1w a1w a1w a1w a1w", None, health) == [2, 1, 0, 4, 3]


def test_the_least_busy_goes_first_only_when_the_first_is_far_busier() -> None:
    health = NodeHealth(
        pending={"n0": 12, "n1": 4, "n2": 2}, pending_threshold=10, slow=frozenset({"n1"})
    )

    assert by_bookkeeper("a1w a1w a1w", None, health) == [2, 0, 1]
    assert by_bookkeeper("a1w a1w a1w", None, NodeHealth(pending={"n0": 12})) == [0, 1, 2]


def test_the_seeds_order_crosses_a_rack_then_a_region_then_goes_by_closeness() -> None:
    members, ensemble = ring("a1w a1w a2w b1w c1w a2r")
    orders = {
        tuple(
            seed_order(
                members,
                ensemble,
                range(6),
                NodeHealth(),
                Location("a", "1"),
                random.Random(seed),
            )
        )
        for seed in range(40)
    }

    assert {order[0] for order in orders} == {0, 1}
    assert {order[1] for order in orders} == {2}
    assert {order[2] for order in orders} == {3, 4}
    assert {order[3] for order in orders} == {0, 1}
    assert {order[5] for order in orders} == {5}


def test_regions_that_a_client_ranks_are_asked_in_that_order() -> None:
    members, ensemble = ring("d1w b1w a1w c1w")
    orders = {
        tuple(
            seed_order(
                members,
                ensemble,
                range(4),
                NodeHealth(),
                Location("a", "1"),
                random.Random(seed),
                next_regions=("c", "b"),
            )
        )
        for seed in range(40)
    }

    assert orders == {(2, 3, 1, 0)}


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from("wrdn")),
        min_size=1,
        max_size=8,
    ),
    st.sets(st.integers(0, 7)),
    st.sampled_from([None, "a", "c"]),
    st.integers(0, 9),
)
def test_every_order_has_each_replica_once_and_the_gone_last(
    places: list[tuple[str, str, str]], slow: set[int], region: str | None, seed: int
) -> None:
    members, ensemble = ring(" ".join("".join(place) for place in places))
    health = NodeHealth(slow=frozenset(f"n{number}" for number in slow))
    local = None if region is None else Location(region, "1")
    write_set = list(range(len(ensemble)))
    orders = [
        bookkeeper_order(members, ensemble, write_set, health, region),
        seed_order(members, ensemble, write_set, health, local, random.Random(seed)),
    ]

    for order in orders:
        gone = [places[index][2] in "dn" for index in order]
        assert sorted(order) == write_set
        assert gone == sorted(gone)


def test_a_read_of_the_lac_asks_all_members_in_the_end() -> None:
    assert with_rest([4, 2], 6) == [4, 2, 0, 1, 3, 5]


def test_reads_stick_to_a_close_node_and_move_on_after_an_error() -> None:
    members, ensemble = ring("b1w a2w a1w")
    local = Location("a", "1")

    assert sticky_index(members, ensemble, None, local, random.Random(1)) == 2
    assert sticky_index(members, ensemble, 2, local, random.Random(1)) == 0
