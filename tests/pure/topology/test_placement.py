"""Placement of a new ledger, against a naive enumeration of every ring of regions."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.notation import quorum_of
from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement import (
    Adherence,
    Candidate,
    PlacementUndecidedError,
    adherence_of,
    arrange_regions,
)
from topology.policy import Placement, PlacementRequest
from topology.quorum import Durability, QuorumConfig, ack_quorum_smallest
from topology.stream_policy import (
    DEFAULT_LOCATION,
    REGION_AWARE_TERMS,
    PlacementPlace,
    policy_of,
)
from topology.tree import Weighting


def up(text: str) -> list[Candidate]:
    """`a3 b2`: nodes 0a 1a 2a 0b 1b; each region has racks r0 and r1 in turn."""
    return [
        Candidate(f"{number}{word[0]}", Location(word[0], f"r{number % 2}"))
        for word in text.split()
        for number in range(int(word[1:]))
    ]


def counts_of(text: str) -> dict[str, int]:
    return {word[0]: int(word[1:]) for word in text.split()}


def chosen(
    config: QuorumConfig, text: str, *, local: str | None = None, seed: int = 0
) -> Placement:
    return chosen_of(config, up(text), local=local, seed=seed)


def chosen_of(
    config: QuorumConfig, nodes: list[Candidate], *, local: str | None, seed: int
) -> Placement:
    """A new ensemble of a region-aware stream."""
    place = PlacementPlace(local=None if local is None else Location.within(local))
    return chosen_at(config, nodes, place, seed=seed)


def chosen_at(
    config: QuorumConfig, nodes: list[Candidate], place: PlacementPlace, *, seed: int
) -> Placement:
    """The same, for a client at a location."""
    return policy_of(REGION_AWARE_TERMS, config, place).new_ensemble(
        Membership.of(
            MembershipConfig(default_location=DEFAULT_LOCATION),
            [
                KnownNode(node=one.node, location=one.location, state=NodeUse.WRITABLE)
                for one in nodes
            ],
        ),
        PlacementRequest(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
        ),
        random.Random(seed),
    )


TEN_RACKS = [
    Candidate(f"{region}{rack}", Location(region, f"r{rack}"))
    for region in "abc"
    for rack in range(10)
]


@pytest.mark.parametrize("weighting", [None, Weighting(2.0)], ids=["alike", "by space"])
@pytest.mark.parametrize("size", range(1, 7))
def test_one_slot_of_the_writers_region_lies_on_its_own_rack(
    size: int, weighting: Weighting | None
) -> None:
    at = PlacementPlace(local=Location("b", "r7"), weighting=weighting)
    for seed in range(10):
        nodes = chosen_at(quorum_of(f"{size}/{size}/{size} m1"), TEN_RACKS, at, seed=seed).nodes

        assert next(node for node in nodes if node[0] == "b") == "b7"


def test_other_slots_of_the_writers_region_lie_on_other_racks_in_no_order() -> None:
    at = PlacementPlace(local=Location("b", "r7"))
    found = [
        chosen_at(quorum_of("6/6/6 m1"), TEN_RACKS, at, seed=seed).nodes for seed in range(40)
    ]
    seconds = {[node for node in nodes if node[0] == "b"][1] for nodes in found}

    assert len(seconds) > 4
    assert "b7" not in seconds


def test_without_a_node_on_its_own_rack_the_writers_region_still_has_its_slots() -> None:
    at = PlacementPlace(local=Location("b", "r7"))

    found = chosen_at(quorum_of("3/3/2 m2"), up("a2 b2 c2"), at, seed=0)

    assert Counter(regions_of(found)) == Counter("abc")


def regions_of(placement: Placement) -> str:
    return "".join(node[-1] for node in placement.nodes)


def naive_is_ack(config: QuorumConfig, regions: list[str]) -> bool:
    return len(regions) >= config.ack_quorum and len(set(regions)) >= config.min_regions


def naive_adherence(config: QuorumConfig, ring: tuple[str, ...]) -> Adherence:
    """PROTOCOL P1, word by word."""
    write_sets = [
        [ring[(first + turn) % len(ring)] for turn in range(config.write_quorum)]
        for first in range(len(ring))
    ]
    if not all(naive_is_ack(config, write_set) for write_set in write_sets):
        return Adherence.FAIL
    if config.durability is Durability.COUNT and any(
        not naive_is_ack(config, list(answers))
        for write_set in write_sets
        for answers in itertools.combinations(write_set, config.ack_quorum)
    ):
        return Adherence.FAIL
    for lost in set(ring):
        for write_set in write_sets:
            if not naive_is_ack(config, [region for region in write_set if region != lost]):
                return Adherence.SOFT
    return Adherence.STRICT


def naive_best(config: QuorumConfig, counts: dict[str, int]) -> Adherence:
    best = Adherence.FAIL
    for ring in itertools.product(counts, repeat=config.ensemble_size):
        shares = Counter(ring)
        if all(shares[region] <= count for region, count in counts.items()):
            match naive_adherence(config, ring):
                case Adherence.STRICT:
                    return Adherence.STRICT
                case Adherence.SOFT:
                    best = Adherence.SOFT
                case Adherence.FAIL:
                    pass
    return best


@st.composite
def configs(draw: st.DrawFn, ensemble_max: int = 6) -> QuorumConfig:
    ensemble = draw(st.integers(1, ensemble_max))
    write = draw(st.integers(1, ensemble))
    regions = draw(st.integers(1, min(write, 3)))
    kind = draw(st.sampled_from(Durability))
    ack = draw(st.integers(ack_quorum_smallest(write, regions, kind), write))
    return quorum_of(f"{ensemble}/{write}/{ack} m{regions} {kind.value}")


@st.composite
def trees(draw: st.DrawFn, regions_max: int = 4, nodes_max: int = 5) -> str:
    sizes = draw(st.lists(st.integers(1, nodes_max), min_size=1, max_size=regions_max))
    return " ".join(f"{name}{size}" for name, size in zip("abcd", sizes, strict=False))


@given(configs(), st.text("abc", min_size=6, max_size=6))
def test_adherence_agrees_with_the_naive_reading_of_its_definition(
    config: QuorumConfig, letters: str
) -> None:
    ring = tuple(letters[: config.ensemble_size])

    assert adherence_of(config, ring) is naive_adherence(config, ring)


@given(configs(), trees(regions_max=3))
def test_the_best_ring_that_exists_is_found(config: QuorumConfig, tree: str) -> None:
    ring = arrange_regions(config, counts_of(tree))
    found = Adherence.FAIL if ring is None else adherence_of(config, ring)

    assert found is naive_best(config, counts_of(tree))


@given(configs(), trees(), st.integers(0, 99), st.sampled_from([None, "a", "b", "z"]))
def test_an_ensemble_is_of_distinct_nodes_that_are_up_and_adheres_as_it_says(
    config: QuorumConfig, tree: str, seed: int, local: str | None
) -> None:
    try:
        placement = chosen(config, tree, local=local, seed=seed)
    except PlacementUndecidedError:
        raise  # Trees this small are searched to the end.
    except NotEnoughNodesError:
        return

    assert len(placement.nodes) == config.ensemble_size
    assert len(set(placement.nodes)) == config.ensemble_size
    assert set(placement.nodes) <= {one.node for one in up(tree)}
    assert placement.adherence is adherence_of(config, regions_of(placement))
    assert placement.adherence is not Adherence.FAIL


@given(configs(), st.integers(1, 4), st.integers(1, 6), st.integers(0, 99))
def test_balanced_regions_give_a_strict_ensemble_wherever_one_fits(
    config: QuorumConfig, regions_count: int, per_region: int, seed: int
) -> None:
    tree = " ".join(f"{name}{per_region}" for name in "abcd"[:regions_count])
    best = naive_best(config, counts_of(tree))

    if best is not Adherence.FAIL:
        assert chosen(config, tree, seed=seed).adherence is best


def test_the_same_nodes_in_another_order_and_the_same_seed_give_the_same_ensemble() -> None:
    config = quorum_of("4/3/2 m2")
    there, back = up("a3 b3 c3"), list(reversed(up("a3 b3 c3")))

    assert chosen_of(config, there, local="b", seed=7) == chosen_of(
        config, back, local="b", seed=7
    )


def test_other_seeds_give_other_ensembles() -> None:
    ensembles = {
        chosen(quorum_of("3/3/2 m2"), "a3 b3 c3", seed=seed).nodes for seed in range(20)
    }

    assert len(ensembles) > 10


def test_nodes_count_for_their_region_wherever_their_names_sort() -> None:
    # 0a 0b 1a 1b …: in name order no region's nodes are adjacent.
    assert chosen(quorum_of("6/6/4 m2"), "a2 b2 c2").adherence is Adherence.STRICT


def test_regions_take_turns_and_the_local_one_comes_first() -> None:
    placement = chosen(quorum_of("6/6/4 m2"), "a3 b3 c3", local="b")
    regions = regions_of(placement)

    assert regions[0] == "b"
    assert regions[:3] == regions[3:]
    assert len(set(regions)) == 3


def test_two_nodes_of_a_region_are_in_two_racks() -> None:
    racks = {one.node: str(one.location) for one in up("a4 b4 c4")}

    for seed in range(20):
        placement = chosen(quorum_of("6/6/4 m2"), "a4 b4 c4", seed=seed)

        assert len({racks[node] for node in placement.nodes}) == 6


def test_a_ring_is_found_where_turns_alone_would_leave_a_write_set_to_one_region() -> None:
    # In turns: a b a b b b, whose last write sets are only in b.
    ring = arrange_regions(quorum_of("6/3/2 m2"), counts_of("a2 b4"))

    assert "".join(ring or []) in {"abbabb", "babbab", "bbabba"}


def test_a_strict_ring_is_preferred_to_turns_that_are_soft() -> None:
    # In turns: a b c c, where the write set c c is lost with its region.
    ring = arrange_regions(quorum_of("4/2/1 m1"), counts_of("a1 b1 c2"))

    assert "".join(ring or []) in {"acbc", "bcac", "cacb", "cbca"}


@pytest.mark.parametrize(
    ("quorum", "tree"),
    [
        ("15/11/8 m3", "a2 b5 c2 d3 e5"),
        ("16/7/4 m4", "a6 b1 c5 d5 e2 f2"),
        ("14/6/4 m4", "a4 b2 c6 d1 e4 f2"),
        ("18/8/6 m5", "a4 b3 c2 d5 e2 f3 g1"),
        ("21/6/3 m3", "a1 b6 c2 d3 e12 f1"),
        ("23/19/10 m4", "a1 b10 c1 d1 e3 f11"),
    ],
)
def test_strict_rings_are_found_even_if_one_order_of_trying_is_slow(
    quorum: str, tree: str
) -> None:
    placement = chosen(quorum_of(quorum), tree, local="b")

    assert placement.adherence is Adherence.STRICT
    assert not placement.is_undecided
    assert placement.nodes[0].endswith("b")


@pytest.mark.parametrize(
    ("quorum", "tree"),
    [
        ("11/7/4 m4", "a5 b1 c1 d3 e1 f3"),
        ("24/7/5 m5", "a3 b1 c3 d12 e9 f5 g2 h1"),
        ("28/7/4 m4", "a2 b8 c2 d1 e9 f6 g1"),
    ],
)
def test_the_search_proves_that_no_ring_is_strict_where_shares_alone_do_not(
    quorum: str, tree: str
) -> None:
    placement = chosen(quorum_of(quorum), tree)

    assert placement.adherence is Adherence.SOFT
    assert not placement.is_undecided


def test_a_search_that_is_cut_off_does_not_claim_that_there_is_no_ring() -> None:
    with pytest.raises(PlacementUndecidedError, match="though there may be one"):
        arrange_regions(quorum_of("23/7/6 m3 count"), counts_of("a24 b8 c5 d2"))


def test_a_soft_ensemble_says_whether_a_strict_one_may_exist() -> None:
    placement = chosen(quorum_of("15/10/7 m5"), "a11 b10 c8 d1 e1 f1 g20")

    assert placement.adherence is Adherence.SOFT
    assert placement.is_undecided


@pytest.mark.parametrize(
    ("quorum", "tree", "obstacle"),
    [
        (
            "14/3/3 m3",
            "a3 b1 c5 d5 e1",
            "at most 4 of 14 slots may be in one region, so 13 nodes can take part: 1 short",
        ),
        (
            "8/5/4 m4",
            "a2 b4 c1 d1 e1",
            "needs nodes in 4 regions: 32 places in all, but the small regions have too few"
            " nodes and fill 31: 1 short",
        ),
    ],
)
def test_a_request_that_no_order_of_regions_can_keep_is_refused_with_the_count(
    quorum: str, tree: str, obstacle: str
) -> None:
    with pytest.raises(NotEnoughNodesError, match=obstacle):
        chosen(quorum_of(quorum), tree)


def test_a_request_that_no_ring_can_keep_is_refused_without_a_search() -> None:
    with pytest.raises(
        NotEnoughNodesError,
        match="at least 5 nodes must be outside regions a and b and d; there are 1: 4 short",
    ):
        chosen(quorum_of("27/6/6 m4"), "a9 b9 c1 d9")


def test_too_few_nodes_are_refused_with_how_many_are_up_and_where() -> None:
    with pytest.raises(
        NotEnoughNodesError,
        match=r"needs 4 nodes .* not excluded; 3 are available \(a: 2, b: 1\): 1 short",
    ):
        chosen(quorum_of("4/3/2 m2"), "a2 b1")


def test_too_few_regions_are_refused_with_how_many_are_up() -> None:
    with pytest.raises(NotEnoughNodesError, match=r"must be in 2 regions, .* allowed in 1"):
        chosen(quorum_of("3/3/2 m2"), "a5")


def test_nodes_without_an_ack_set_are_refused_with_the_quorums() -> None:
    with pytest.raises(NotEnoughNodesError, match=r"no ensemble fits .E 4 W 4 A 3, 2 regions"):
        chosen(quorum_of("4/4/3 m2 count"), "a4 b1")


def test_a_flapping_node_is_taken_if_no_strict_ensemble_exists_without_it() -> None:
    config = quorum_of("3/3/2 m2")
    members = Membership.of(
        MembershipConfig(default_location=DEFAULT_LOCATION, departures_max=0, flapping_s=60),
        [
            KnownNode(
                node=one.node,
                location=one.location,
                state=NodeUse.WRITABLE,
                left_s=(0.0,) if one.location.region == "c" else (),
            )
            for one in up("a3 b3 c1")
        ],
    )
    request = PlacementRequest(ensemble_size=3, write_quorum=3, ack_quorum=2, now_s=1.0)
    for seed in range(10):
        placement = policy_of(REGION_AWARE_TERMS, config).new_ensemble(
            members, request, random.Random(seed)
        )

        assert placement.adherence is Adherence.STRICT
        assert set(regions_of(placement)) == {"a", "b", "c"}
