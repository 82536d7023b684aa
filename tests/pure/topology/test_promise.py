"""Whether an ensemble keeps its promise, against trying every loss by hand."""

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.test_placement import up
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement import Candidate
from topology.policy import Placement, PlacementRequest
from topology.promise import policy_keeping, promise_broken
from topology.quorum import AckRule, QuorumConfig
from topology.ring.window_rule import Adherence
from topology.stream_policy import DEFAULT_LOCATION, REGION_AWARE_TERMS, policy_of
from topology.survive import Loss, SurvivalPlan, plan_to_survive


def lost_sets(survive: str, places: Sequence[Location]) -> Iterator[set[int]]:
    """The slots that each loss takes."""
    loss = Loss.parse(survive)
    slots = range(len(places))
    domains = {
        "node": [str(slot) for slot in slots],
        "rack": [str(place) for place in places],
        "region": [place.region for place in places],
    }[loss.kind]
    names = sorted(set(domains))
    for gone in itertools.combinations(names, min(loss.domains, len(names))):
        lost = {slot for slot in slots if domains[slot] in gone}
        left = [slot for slot in slots if slot not in lost]
        for nodes in itertools.combinations(left, min(loss.nodes, len(left))):
            yield lost | set(nodes)


def is_kept(survive: str, quorum: QuorumConfig, places: Sequence[Location]) -> bool:
    rule = AckRule(quorum, [place.region for place in places])
    everything = (1 << len(places)) - 1
    for lost in lost_sets(survive, places):
        mask = sum(1 << slot for slot in lost)
        for entry in range(len(places)):
            if rule.is_ack(entry, mask) or not rule.is_ack(entry, everything & ~mask):
                return False
    return True


@st.composite
def ensembles(draw: st.DrawFn) -> tuple[QuorumConfig, tuple[Location, ...]]:
    size = draw(st.integers(1, 6))
    write = draw(st.integers(1, size))
    ack = draw(st.integers(1, write))
    quorum = QuorumConfig(
        ensemble_size=size,
        write_quorum=write,
        ack_quorum=ack,
        min_regions=draw(st.integers(1, ack)),
    )
    place = st.builds(Location, st.sampled_from("abc"), st.sampled_from(["x", "y"]))
    return quorum, tuple(draw(st.lists(place, min_size=size, max_size=size)))


@given(
    ensembles(),
    st.sampled_from(["1 node", "1 rack", "1 region", "1 region and 1 node", "2 regions"]),
)
def test_a_promise_is_broken_when_some_loss_leaves_no_ack_set_or_is_one(
    ensemble: tuple[QuorumConfig, tuple[Location, ...]], survive: str
) -> None:
    quorum, places = ensemble

    broken = promise_broken(Loss.parse(survive), quorum, places)

    assert (broken is None) == is_kept(survive, quorum, places)


@given(
    st.integers(3, 9),
    st.lists(st.sampled_from("abcde"), min_size=9, max_size=9),
    st.sampled_from(["1 region", "1 region and 1 node", "2 regions"]),
)
def test_a_policy_that_keeps_a_promise_is_strict_exactly_where_it_is_kept(
    size: int, regions: list[str], survive: str
) -> None:
    """For majorities, and an m of one more than may be lost, as in all promises."""
    min_regions = Loss.parse(survive).domains + 1
    quorum = QuorumConfig(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=max(size // 2 + 1, min_regions),
        min_regions=min_regions,
    )
    places = [Location(region, "r") for region in regions[:size]]
    nodes = [
        KnownNode(node=f"n{slot}", location=place, state=NodeUse.WRITABLE)
        for slot, place in enumerate(places)
    ]
    members = Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), nodes)
    policy = policy_keeping(policy_of(REGION_AWARE_TERMS, quorum), survive)

    found = policy.adherence(members, [one.node for one in nodes], size, quorum.ack_quorum)

    assert (found is Adherence.STRICT) == is_kept(survive, quorum, places)


def placed_for(plan: SurvivalPlan, nodes: Sequence[Candidate], seed: int) -> Placement:
    quorum = plan.quorum
    members = Membership.of(
        MembershipConfig(default_location=DEFAULT_LOCATION),
        [KnownNode(node=n.node, location=n.location, state=NodeUse.WRITABLE) for n in nodes],
    )
    request = PlacementRequest(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
    )
    policy = policy_of(plan.placement, quorum)
    return policy.new_ensemble(members, request, random.Random(seed))


@pytest.mark.parametrize(
    ("survive", "tree"),
    [
        ("1 node", "a4"),
        ("1 rack", "a4 b4"),
        ("1 region", "a2 b2 c2"),
        ("1 region", "a9 b3 c3"),
        ("1 region and 1 node", "a9 b9 c9"),
        ("2 regions", "a3 b3 c3 d3 e3"),
    ],
)
def test_an_ensemble_placed_for_a_promise_keeps_it(survive: str, tree: str) -> None:
    nodes = up(tree)
    plan = plan_to_survive(survive, nodes)
    places = {one.node: one.location for one in nodes}

    for seed in range(20):
        placement = placed_for(plan, nodes, seed)

        assert placement.adherence is Adherence.STRICT
        found = tuple(places[node] for node in placement.nodes)
        assert promise_broken(plan.loss, plan.quorum, found) is None


def test_on_the_remaining_racks_a_ledger_is_soft_and_does_not_fail() -> None:
    nodes = [Candidate(f"{rack}{at}", Location("a", rack)) for rack in "xyz" for at in range(3)]
    plan = plan_to_survive("1 rack", nodes)

    def adherence(racks: str) -> Adherence:
        left = [one for one in nodes if one.location.rack in racks]
        return placed_for(plan, left, seed=1).adherence

    assert adherence("xyz") is Adherence.STRICT
    assert adherence("xy") is Adherence.SOFT
    assert adherence("x") is Adherence.FAIL
