"""Policies of other packages: whatever they answer, only an allowed ensemble is placed."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.own_policy import OwnPolicies, PolicyFailedError, Ring, UnknownPolicyError
from topology.policies.of_package import OfPackage
from topology.policy import PlacementPolicy, PlacementRequest
from topology.quorum import QuorumConfig
from topology.ring.window_rule import Adherence
from topology.stream_policy import PlacementPlace, policy_of, terms_named

RNG = random.Random(0)
QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)


class Scripted:
    """A policy that gives the answers of a test."""

    name = "scripted"

    def __init__(
        self, answer: Mapping[int, str] | None = None, judged: object = Adherence.STRICT
    ) -> None:
        self._answer = answer
        self._judged = judged
        self.asked: list[tuple[Ring, list[str]]] = []

    def fill(
        self, ring: Ring, free: Sequence[KnownNode], rng: random.Random
    ) -> Mapping[int, str]:
        self.asked.append((ring, [one.node for one in free]))
        if self._answer is not None:
            return self._answer
        return {slot: one.node for slot, one in zip(ring.open_slots, free, strict=False)}

    def adherence(self, ring: Ring) -> Adherence:
        if isinstance(self._judged, Exception):
            raise self._judged
        return self._judged  # type: ignore[return-value] # A policy may answer anything.


def cluster(text: str) -> Membership:
    """`a1 a2 b1-`: nodes of regions a and b, the last of them down."""
    return Membership.of(
        MembershipConfig(default_location=Location("nowhere", "r")),
        [
            KnownNode(
                node=one.rstrip("-"),
                location=Location(one[0], one[1]),
                state=NodeUse.DOWN if one.endswith("-") else NodeUse.WRITABLE,
            )
            for one in text.split()
        ],
    )


def asked(
    *, exclude: str = "", leaving: str = "", quorum: QuorumConfig = QUORUM
) -> PlacementRequest:
    return PlacementRequest(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        exclude=frozenset(exclude.split()),
        leaving=frozenset(leaving.split()),
    )


def by(own: Scripted, quorum: QuorumConfig = QUORUM) -> PlacementPolicy:
    return OfPackage(own.name, own, quorum)


@given(
    states=st.lists(st.booleans(), min_size=1, max_size=6),
    excluded=st.sets(st.integers(0, 5), max_size=3),
    answer=st.dictionaries(st.integers(-1, 3), st.integers(0, 6), max_size=5),
    min_regions=st.integers(1, 2),
)
def test_an_ensemble_is_placed_only_if_every_rule_holds(
    states: list[bool], excluded: set[int], answer: dict[int, int], min_regions: int
) -> None:
    names = [f"{'ab'[number % 2]}{number}" for number in range(7)]
    text = " ".join(name + ("" if up else "-") for name, up in zip(names, states, strict=False))
    members, out = cluster(text), {names[number] for number in excluded}
    chosen = {slot: names[number] for slot, number in answer.items()}
    quorum = QuorumConfig(
        ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=min_regions
    )
    usable = {name for name, up in zip(names, states, strict=False) if up and name not in out}
    nodes = [chosen.get(slot) for slot in range(3)]
    is_allowed = (
        set(chosen) == {0, 1, 2}
        and len(set(nodes)) == 3
        and usable.issuperset(nodes)
        and len({str(node)[0] for node in nodes}) >= min_regions
    )

    try:
        placed = by(Scripted(chosen), quorum).new_ensemble(
            members, asked(exclude=" ".join(out), quorum=quorum), RNG
        )
    except NotEnoughNodesError:
        assert not is_allowed
    else:
        assert is_allowed
        assert placed.nodes == tuple(nodes)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({0: "a1", 1: "a1", 2: "b1"}, "chose node 'a1' for slot 1, twice"),
        ({0: "a1", 1: "b2", 2: "b1"}, "chose node 'b2' for slot 1, which is not free"),
        ({0: "a1", 1: "c1", 2: "b1"}, "chose node 'c1' for slot 1, which is not free"),
        ({0: "a1", 7: "b1"}, "chose a node for slot 7; the open slots are 0, 1, 2"),
        ({0: "a1", 1: "a2", 2: "a3"}, "no ack set: a1 in /a/1, a2 in /a/2, a3 in /a/3"),
        (["a"], "failed to choose nodes: "),
    ],
)
def test_a_choice_that_breaks_a_rule_is_refused_by_the_name_of_the_policy(
    answer: Mapping[int, str], says: str
) -> None:
    with pytest.raises(PolicyFailedError, match="placement policy 'scripted'") as caught:
        by(Scripted(answer)).new_ensemble(
            cluster("a1 a2 a3 b1 b2 c1-"), asked(exclude="b2"), RNG
        )

    assert says in str(caught.value)
    assert caught.value.retriable is False


def test_a_policy_that_fills_too_few_slots_needs_more_nodes() -> None:
    with pytest.raises(NotEnoughNodesError, match="found nodes for 2 of 3 slots; 2 nodes are"):
        by(Scripted()).new_ensemble(cluster("a1 b1"), asked(), RNG)


@pytest.mark.parametrize("judged", ["strict", ValueError("no")])
def test_a_judgement_that_is_none_is_refused(judged: object) -> None:
    with pytest.raises(PolicyFailedError, match="judge"):
        by(Scripted(judged=judged)).new_ensemble(cluster("a1 b1 a2"), asked(), RNG)


def test_the_policys_judgement_cannot_hide_a_missing_ack_set() -> None:
    judge = by(Scripted(judged=Adherence.STRICT)).adherence

    assert judge(cluster("a1 b1 a2"), ["a1", "b1", "a2"], 3, 2) is Adherence.STRICT
    assert judge(cluster("a1 b1- a2"), ["a1", "b1", "a2"], 3, 2) is Adherence.FAIL


def test_lost_members_are_replaced_while_the_others_keep_their_slots() -> None:
    own = Scripted()
    found = by(own).replace_slots(
        cluster("a1 b1- a2 b2 a3"), asked(), ["a1", "b1", "a2"], [1], RNG
    )

    [(ring, free)] = own.asked
    assert [one and one.node for one in ring.slots] == ["a1", None, "a2"]
    assert free == ["a3", "b2"]
    assert found.nodes == {1: "a3"}
    assert found.adherence is Adherence.FAIL, "two regions are needed"


def test_a_repair_changes_the_leaving_member_alone_if_that_is_enough() -> None:
    placed = by(Scripted()).repair(
        cluster("a1 b1 a2 b2"), asked(leaving="b1"), ["a1", "b1", "a2"], RNG
    )

    assert placed.nodes == ("a1", "b2", "a2")


def test_a_repair_opens_further_slots_until_the_policy_adheres() -> None:
    class WantsA3(Scripted):
        def adherence(self, ring: Ring) -> Adherence:
            names = {one.node for one in ring.slots if one}
            return Adherence.STRICT if "a3" in names else Adherence.FAIL

    placed = by(WantsA3()).repair(cluster("a1 b1 a2 a3"), asked(), ["a1", "b1", "a2"], RNG)

    assert placed.nodes == ("a3", "b1", "a2")


def test_an_unknown_policy_places_nothing_and_names_the_nearest() -> None:
    known = OwnPolicies({"most_space": Scripted, "by_price": Scripted})
    policy = policy_of(terms_named("most_spcae"), QUORUM, PlacementPlace(own=known))
    told = "does not know placement policy 'most_spcae'.*did you mean 'most_space'.*'geolog.pl"

    with pytest.raises(UnknownPolicyError, match=told):
        policy.new_ensemble(cluster("a1 b1 a2"), asked(), RNG)
    with pytest.raises(UnknownPolicyError, match=told):
        policy.replace_slots(cluster("a1 b1 a2"), asked(), ["a1", "b1", "a2"], [0], RNG)


def test_an_unknown_policy_is_judged_by_the_quorums_alone() -> None:
    judge = policy_of(terms_named("elsewhere"), QUORUM).adherence

    assert judge(cluster("a1 b1 a2"), ["a1", "b1", "a2"], 3, 2) is Adherence.STRICT
    assert judge(cluster("a1 b1- a2"), ["a1", "b1", "a2"], 3, 2) is Adherence.FAIL
