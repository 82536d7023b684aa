"""Replacement of lost members, against a naive trial of every node in every slot."""

import itertools
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.notation import quorum_of
from tests.pure.topology.test_placement import configs, counts_of, naive_adherence, trees, up
from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement import Adherence, Candidate
from topology.policy import PlacementRequest
from topology.quorum import QuorumConfig
from topology.replacement import Replacement
from topology.ring.search import PlacementUndecidedError
from topology.stream_policy import (
    DEFAULT_LOCATION,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)

RANKS = {Adherence.FAIL: 0, Adherence.SOFT: 1, Adherence.STRICT: 2}


def ring_of(letters: str) -> list[Candidate]:
    """`aab`: members m0 and m1 in region a, m2 in b, each on a rack of its own."""
    return [
        Candidate(f"m{slot}", Location(one, f"m{slot}")) for slot, one in enumerate(letters)
    ]


def replace_nodes(
    config: QuorumConfig,
    ring: list[Candidate],
    slots: Iterable[int],
    candidates: Iterable[Candidate],
    *,
    local: Location | None = None,
    seed: int = 0,
    policy: PolicyKind = PolicyKind.REGION_AWARE,
) -> Replacement:
    """Replace these slots of a ring, whose members are all down, by candidates that are up."""
    members = [
        KnownNode(node=one.node, location=one.location, state=state)
        for state, some in ((NodeUse.DOWN, ring), (NodeUse.WRITABLE, candidates))
        for one in some
    ]
    return policy_of(
        PlacementTerms(policy=policy), config, PlacementPlace(local=local)
    ).replace_slots(
        Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), members),
        PlacementRequest(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
        ),
        [one.node for one in ring],
        list(slots),
        random.Random(seed),
    )


def replaced(
    quorums: str,
    letters: str,
    slots: str,
    tree: str,
    *,
    local: str | None = None,
    seed: int = 0,
) -> Replacement:
    return replace_nodes(
        quorum_of(quorums),
        ring_of(letters),
        [int(slot) for slot in slots],
        up(tree),
        local=None if local is None else Location.within(local),
        seed=seed,
    )


def naive_best(
    config: QuorumConfig, letters: str, slots: set[int], tree: str
) -> tuple[int, Adherence] | None:
    """The most slots that can be replaced, and the best adherence among those choices."""
    found = []
    stay_or_go = [
        [letters[slot], *(one.location.region.upper() for one in up(tree))]
        if slot in slots
        else [letters[slot]]
        for slot in range(len(letters))
    ]
    for ring in set(itertools.product(*stay_or_go)):
        given_away = [one for one in ring if one.isupper()]
        if given_away and all(
            given_away.count(region.upper()) <= count
            for region, count in counts_of(tree).items()
        ):
            adherence = naive_adherence(config, tuple("".join(ring).lower()))
            found.append((len(given_away), RANKS[adherence], adherence))
    best = max((one for one in found if one[1]), default=None, key=lambda one: one[:2])
    return None if best is None else (best[0], best[2])


@pytest.mark.parametrize("kind", [PolicyKind.REGION_AWARE, PolicyKind.RACK_AWARE])
def test_the_writers_own_rack_comes_first_among_equals(kind: PolicyKind) -> None:
    ring = ring_of("ab")
    racks = [Candidate(f"b{rack}", Location("b", f"r{rack}")) for rack in range(9)]
    for seed in range(10):
        found = replace_nodes(
            quorum_of("2/2/1 m1"),
            ring,
            [1],
            racks,
            local=Location("b", "r7"),
            seed=seed,
            policy=kind,
        )

        assert found.nodes == {1: "b7"}


@given(
    configs(ensemble_max=5),
    st.text("abc", min_size=5, max_size=5),
    st.sets(st.integers(0, 4), min_size=1, max_size=3),
    trees(regions_max=3, nodes_max=2),
    st.integers(0, 99),
)
def test_as_many_as_possible_are_replaced_as_well_as_possible(
    config: QuorumConfig, letters: str, some_slots: set[int], tree: str, seed: int
) -> None:
    letters = letters[: config.ensemble_size]
    slots = {slot % config.ensemble_size for slot in some_slots}
    best = naive_best(config, letters, slots, tree)
    ring, candidates = ring_of(letters), up(tree)
    try:
        found = replace_nodes(config, ring, slots, candidates, seed=seed)
    except NotEnoughNodesError:
        assert best is None
        return

    assert best == (len(found.nodes), found.adherence)
    assert set(found.nodes) <= slots
    assert len(set(found.nodes.values())) == len(found.nodes)
    assert set(found.nodes.values()) <= {one.node for one in candidates}


def test_the_region_of_the_lost_member_is_preferred_where_the_ring_lacks_it() -> None:
    for seed in range(10):
        assert replaced("3/3/2 m2", "abc", "2", "a2 b2 c1", seed=seed).nodes == {2: "0c"}


def test_another_region_replaces_a_lost_one_and_the_answer_says_so() -> None:
    found = replaced("3/3/2 m2", "abc", "2", "a1 b1")

    assert found.adherence is Adherence.SOFT


def test_of_equally_good_regions_the_local_one_is_taken() -> None:
    for seed in range(10):
        assert replaced("3/3/2 m2", "abc", "2", "a1 b1", local="b", seed=seed).nodes == {
            2: "0b"
        }


def test_a_rack_that_the_ring_does_not_use_is_preferred() -> None:
    ring = [Candidate("m0", Location("a", "r0")), Candidate("m1", Location("b", "r0"))]
    candidates = [
        Candidate("on the same rack", Location("a", "r0")),
        Candidate("on another", Location("a", "r1")),
    ]
    for seed in range(10):
        found = replace_nodes(
            quorum_of("2/2/2 m1"),
            ring,
            [1],
            candidates,
            seed=seed,
        )

        assert found.nodes == {1: "on another"}


def test_with_one_spare_node_for_two_lost_members_one_is_replaced() -> None:
    found = replaced("3/3/2 m1", "abc", "12", "b1")

    assert found.nodes == {1: "0b"}


def test_without_a_free_node_the_refusal_says_what_is_there() -> None:
    with pytest.raises(NotEnoughNodesError, match="of a b c; free nodes: none"):
        replaced("3/3/2 m2", "abc", "2", "")


def test_nodes_that_leave_no_ack_set_are_refused() -> None:
    with pytest.raises(NotEnoughNodesError, match="free nodes: a: 3"):
        replaced("2/2/2 m2", "ab", "1", "a3")


def test_a_ring_of_many_windows_is_repaired_strictly_where_one_fits() -> None:
    found = replaced("9/3/2 m2", "abcabcabc", "258", "a3 b3 c3")

    assert found.adherence is Adherence.STRICT
    assert sorted(node[-1] for node in found.nodes.values()) == ["c", "c", "c"]


def test_of_many_slots_and_regions_the_only_strict_choices_are_found() -> None:
    for quorums, letters, slots, tree in [
        ("10/4/3 m3", "abcdefabce", "124568", "a3 e3 f1 b1 c4"),
        ("10/3/2 m2", "adbadbadbc", "34789", "b3 c3 d2 a1"),
    ]:
        assert replaced(quorums, letters, slots, tree).adherence is Adherence.STRICT


def test_a_rack_aware_policy_prefers_a_rack_that_the_ring_lacks() -> None:
    ring = [Candidate("m0", Location("a", "r0")), Candidate("m1", Location("a", "r1"))]
    candidates = [Candidate("n0", Location("a", "r0")), Candidate("n2", Location("a", "r2"))]
    for seed in range(10):
        found = replace_nodes(
            quorum_of("2/2/2 m1"),
            ring,
            [1],
            candidates,
            seed=seed,
            policy=PolicyKind.RACK_AWARE,
        )

        assert found == Replacement({1: "n2"}, Adherence.STRICT)


def test_a_rack_aware_policy_places_what_it_cannot_keep_and_says_so() -> None:
    ring = [Candidate("m0", Location("a", "r0")), Candidate("m1", Location("a", "r1"))]
    found = replace_nodes(
        quorum_of("2/2/2 m1"),
        ring,
        [1],
        [Candidate("n0", Location("a", "r0"))],
        policy=PolicyKind.RACK_AWARE,
    )

    assert found == Replacement({1: "n0"}, Adherence.FAIL)


def test_a_search_for_a_better_choice_that_is_cut_off_says_so() -> None:
    found = replaced("9/6/4 m4", "bacddceba", "01234678", "a4 b2 c2 d1 e3")

    assert found.adherence is Adherence.SOFT
    assert found.is_undecided


def test_a_search_for_any_node_that_is_cut_off_is_not_a_refusal() -> None:
    with pytest.raises(PlacementUndecidedError, match="though there may be one"):
        replaced("11/5/5 m4", "ccdddbccccb", "023456789", "a3 b3 c4 d3")


def test_unrepairable_write_sets_are_a_certain_refusal_however_many_choices_there_are() -> None:
    with pytest.raises(NotEnoughNodesError, match="can take a slot"):
        replaced("8/3/3 m3", "bbadabad", "2457", "a2 b4 c1 d3 e4 f1")


def test_the_choice_ends_even_with_many_lost_and_few_free_nodes() -> None:
    found = replaced("10/3/2 m2", "aaabaababa", "012345678", "a3 b2")

    assert len(found.nodes) == 5
