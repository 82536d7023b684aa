"""The losses that a stream can be promised to survive, and that promises are kept."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.notation import quorum_of
from tests.pure.topology.test_placement import chosen, counts_of, regions_of, up
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.placement import Adherence, Candidate
from topology.quorum import AckRule, Durability, QuorumConfig
from topology.stream_policy import PlacementTerms, PolicyKind
from topology.survive import Loss, plan_to_survive


def quorums_to_survive(survive: str, candidates: list[Candidate]) -> QuorumConfig:
    return plan_to_survive(survive, candidates).quorum


@pytest.mark.parametrize(
    ("tree", "quorums"),
    [
        ("a2 b2 c2", "3/3/2 m2"),
        ("a3 b3 c3", "6/6/4 m2"),
        ("a9 b2 c2", "3/3/2 m2"),
        ("a5 b5 c1", "3/3/2 m2"),  # Six copies would put three in a: too many to lose.
        ("a1 b1 c1 d1", "3/3/2 m2"),
        ("a2 b2 c2 d2", "4/4/3 m2"),
        ("a3 b3 c3 d3", "8/8/5 m2"),
    ],
)
def test_surviving_a_region_gives_quorums(tree: str, quorums: str) -> None:
    assert quorums_to_survive("1 region", up(tree)) == quorum_of(quorums)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("a1 b1 c1", "3 nodes must be left in at least 2 regions; nodes up: a: 1, b: 1, c: 1"),
        ("a5 b1 c1", "3 nodes must be left in at least 2 regions; nodes up: a: 5, b: 1, c: 1"),
        ("a5 b5", r"at least 3 regions; nodes are up in 2 \(a, b\)"),
        ("", r"at least 3 regions; nodes are up in 0 \(none\)"),
    ],
)
def test_surviving_a_region_is_refused_where_nothing_could_be_written_after_it(
    tree: str, message: str
) -> None:
    with pytest.raises(NotEnoughNodesError, match=message):
        quorums_to_survive("1 region", up(tree))


def test_an_impossible_promise_is_refused_with_the_possible_ones() -> None:
    with pytest.raises(InvalidArgumentError, match=r"unknown promise '3 regions' .*2 reg"):
        quorums_to_survive("3 regions", up("a3 b3 c3"))
    with pytest.raises(InvalidArgumentError, match=r"is in one region\..*'1 node', '1 rack'"):
        plan_to_survive("1 region", up("a9"), home="a")
    with pytest.raises(InvalidArgumentError, match="did you mean '1 region'"):
        plan_to_survive("1 regoin", up("a9"))


@pytest.mark.parametrize(
    ("survive", "tree", "nearest"),
    [
        ("2 regions", "a3 b3 c3 d3", "1 region and 1 node"),
        ("1 region and 1 node", "a3 b3 c3", "1 region"),
        ("1 region", "a5 b5", "1 rack"),
        ("1 rack", "a4", "1 node"),
    ],
)
def test_a_refusal_names_the_possible_promise(survive: str, tree: str, nearest: str) -> None:
    with pytest.raises(NotEnoughNodesError, match=f"Possible now: '{nearest}'"):
        plan_to_survive(survive, up(tree))


def test_a_lost_rack_takes_one_copy_at_most() -> None:
    plan = plan_to_survive("1 rack", up("a8 b8"))

    assert plan.placement == PlacementTerms(policy=PolicyKind.RACK_AWARE, min_racks=3)


def test_a_promise_by_count_waits_for_more_than_any_lost_region_holds() -> None:
    tree = "a4 b4 c4"

    assert plan_to_survive(
        "1 region", up(tree), durability=Durability.COUNT
    ).quorum == quorum_of("6/6/4 m2 count")
    with pytest.raises(NotEnoughNodesError, match="With durability 'regions' it can"):
        plan_to_survive("2 regions", up("a4 b4 c4 d4 e4"), durability=Durability.COUNT)


@given(st.lists(st.integers(1, 6), min_size=3, max_size=5), st.integers(0, 99))
def test_a_promise_to_survive_a_region_is_kept(sizes: list[int], seed: int) -> None:
    tree = " ".join(f"{name}{size}" for name, size in zip("abcde", sizes, strict=False))
    try:
        config = quorums_to_survive("1 region", up(tree))
    except NotEnoughNodesError:
        assert sum(sizes) - max(sizes) < 3
        return
    regions = regions_of(chosen(config, tree, seed=seed))
    rule = AckRule(config, regions)

    for lost in set(regions):
        left = sum(1 << slot for slot, region in enumerate(regions) if region != lost)
        assert rule.acks_all(left)
        assert rule.blocks_all(left)
    for lost in counts_of(tree):
        rest = " ".join(word for word in tree.split() if word[0] != lost)
        assert chosen(config, rest, seed=seed).adherence is not Adherence.FAIL


@pytest.mark.parametrize(
    ("survive", "tree", "quorums"),
    [
        ("1 node", "a4", "3/3/2 m1"),
        ("1 rack", "a8 b8", "3/3/2 m1"),
        ("2 regions", "a2 b2 c2 d2 e2", "5/5/3 m3"),
        ("2 regions", "a4 b4 c4 d4 e4", "10/10/6 m3"),
        ("1 region and 1 node", "a7 b7 c7", "9/9/5 m2"),
        ("1 region and 1 node", "a4 b4 c4 d4", "8/8/5 m2"),
        ("One  region and one node", "a3 b3 c3 d3 e3", "10/10/6 m2"),
    ],
)
def test_other_losses_give_quorums_too(survive: str, tree: str, quorums: str) -> None:
    plan = plan_to_survive(survive, up(tree))

    assert plan.quorum == quorum_of(quorums)
    assert len(plan.explanation) == 3


@pytest.mark.parametrize(
    ("survive", "tree", "message"),
    [
        ("2 regions", "a9 b9 c9 d9", "at least 5 regions; nodes are up in 4"),
        ("1 rack", "a9", "at least 3 racks; nodes are up in 2"),
        ("1 node", "a3", "the smallest has 3 nodes"),
        (
            "1 region and 1 node",
            "a3 b3 c3",
            "must hold .*; the smallest has 9 nodes",
        ),
        ("1 region and 1 node", "a3 b1 c1 d1", "the smallest has 8 nodes"),
    ],
)
def test_a_loss_that_leaves_no_room_for_an_ensemble_is_refused(
    survive: str, tree: str, message: str
) -> None:
    with pytest.raises(NotEnoughNodesError, match=message):
        plan_to_survive(survive, up(tree))


def test_the_choice_is_explained_with_its_cost() -> None:
    assert plan_to_survive("1 region", up("a3 b3 c3")).explanation == (
        "6 copies of every entry: 2 in each of 3 regions",
        "an append waits for 4 of them, in at least 2 regions: about one round trip to the"
        " nearest other region that completes the number",
        "without any 1 region, 4 copies are left to write to, the lost copies never held an"
        " entry alone, and a new ensemble still fits the nodes that are up",
    )


@given(
    st.sampled_from(["1 region", "1 region and 1 node", "2 regions"]),
    st.lists(st.integers(1, 7), min_size=3, max_size=5),
    st.integers(0, 9),
)
def test_every_promise_is_kept_on_the_ensembles_that_are_placed(
    survive: str, sizes: list[int], seed: int
) -> None:
    tree = " ".join(f"{name}{size}" for name, size in zip("abcde", sizes, strict=False))
    try:
        config = quorums_to_survive(survive, up(tree))
    except NotEnoughNodesError:
        return
    loss = Loss.parse(survive)
    ring = chosen(config, tree, seed=seed).nodes
    rule = AckRule(config, [node[-1] for node in ring])

    for regions in itertools.combinations(counts_of(tree), loss.domains):
        nodes = [node for node in ring if node[-1] not in regions]
        for others in itertools.combinations(nodes, loss.nodes):
            left = sum(
                1 << slot
                for slot, node in enumerate(ring)
                if node[-1] not in regions and node not in others
            )
            assert rule.acks_all(left)
            assert rule.blocks_all(left)
