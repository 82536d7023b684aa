"""The ranking of replicas: against a naive model, and what it promises."""

import random
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.read_order import NodeHealth, distance, seed_order
from topology.replica_ranking import (
    CLEARLY,
    DEMOTED_S_MAX,
    DEMOTED_S_MIN,
    DEMOTIONS_MAX,
    FORGOTTEN_S,
    OFFER_S,
    OVERTAKEN_MAX,
    OVERTAKEN_SILENT_S,
    PENDING_MORE,
    REPLICAS_MAX,
    SHADOW_S,
    SILENT_S,
    TRIAL_S,
    USUAL_MULTIPLE,
    USUAL_S_MIN,
    DemotionReason,
    Ranked,
    ReplicaRanking,
)
from topology.route_latency import ANSWERS_MIN, REREAD_S

NODES = ["n0", "n1", "n2", "n3"]
PLACES = [Location("a", "1"), Location("a", "1"), Location("a", "2"), Location("b", "1")]
LOCAL = Location("a", "1")
MEMBERS = Membership.of(
    MembershipConfig(default_location=Location("u", "u")),
    [
        KnownNode(node=node, location=place, state=NodeUse.WRITABLE)
        for node, place in zip(NODES, PLACES, strict=True)
    ],
)
DISTANCES = [distance(LOCAL, place) for place in PLACES]


def drawing(seed: int) -> Callable[[NodeHealth], list[int]]:
    rng = random.Random(seed)
    return lambda health: seed_order(MEMBERS, NODES, range(4), health, LOCAL, rng)


def order_of(ranking: ReplicaRanking, now_s: float, seed: int = 0) -> Ranked:
    return ranking.ranked(NODES, DISTANCES, drawing(seed), now_s)


def ask_first(
    ranking: ReplicaRanking, now_s: float, draw: Callable[[NodeHealth], list[int]]
) -> Ranked:
    ranked = ranking.ranked(NODES, DISTANCES, draw, now_s, may_try=True)
    ranking.asked(NODES[ranked.slots[0]], now_s)
    if ranked.tried is not None:
        ranking.asked(NODES[ranked.tried], now_s)
    return ranked


def firsts(ranking: ReplicaRanking, now_s: float) -> set[int]:
    """The first replicas of many orders, none of which is a trial."""
    found = [order_of(ranking, now_s, seed) for seed in range(30)]
    return {one.slots[0] for one in found}


# ---------------------------------------------------------------- a naive model


@attrs.define
class Naive:
    """One replica as the rules say it in words: its whole history, evaluated again.

    All answers are in time.
    """

    events: list[tuple[float, str]] = attrs.field(factory=list)

    def demoted_until_s(self) -> float | None:
        """End of its demotion, which may be over; None if nothing is held against it."""
        until_s: float | None = None
        lost = length = 0
        forgiven_s = -1e9
        for now_s, what in self.events:
            if until_s is None:
                lost = 0 if what == "answered" else lost + (what == "overtaken")
                if what == "failed" or lost >= OVERTAKEN_MAX:
                    length = 0 if now_s - forgiven_s >= FORGOTTEN_S else length
                    until_s = now_s + min(DEMOTED_S_MIN * 2**length, DEMOTED_S_MAX)
                    length += 1
            elif what == "answered":
                until_s, lost, forgiven_s = None, 0, now_s
            elif now_s >= until_s:
                until_s = now_s + min(DEMOTED_S_MIN * 2**length, DEMOTED_S_MAX)
                length += 1
        return until_s


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.3, DEMOTED_S_MIN, 2.5, DEMOTED_S_MAX, FORGOTTEN_S]),
        st.sampled_from(["failed", "overtaken", "overtaken", "answered"]),
        st.sampled_from([0.001, USUAL_S_MIN]),
    ),
    max_size=30,
)


@given(STEPS)
def test_demotions_are_those_of_the_rules_in_words(
    steps: list[tuple[float, str, float]],
) -> None:
    ranking, naive, now_s = ReplicaRanking(), Naive(), 0.0
    for pause_s, what, took_s in steps:
        now_s += pause_s
        naive.events.append((now_s, what))
        match what:
            case "failed":
                ranking.note_failed("n2", now_s)
            case "overtaken":
                ranking.note_overtaken("n2", now_s, now_s)
            case _:
                ranking.note_answered("n2", took_s, now_s)
        until_s = naive.demoted_until_s()

        assert ranking.demoted_count(now_s) == (until_s is not None and now_s < until_s)
        assert (order_of(ranking, now_s).slots[-1] == 2) == (
            until_s is not None and now_s < until_s
        )


@given(STEPS, st.lists(st.sampled_from(NODES), min_size=30, max_size=30), st.integers(0, 9))
def test_whatever_happened_a_replica_is_asked_again(
    steps: list[tuple[float, str, float]], nodes: list[str], seed: int
) -> None:
    ranking, now_s = ReplicaRanking(), 0.0
    for (pause_s, what, took_s), node in zip(steps, nodes, strict=False):
        now_s += pause_s
        match what:
            case "failed":
                ranking.note_failed(node, now_s)
            case "overtaken":
                ranking.note_overtaken(node, now_s, now_s)
            case _:
                ranking.note_answered(node, took_s, now_s)
        ask_first(ranking, now_s, drawing(seed))  # Nothing is heard of it again.

    draw, asked = drawing(seed), set[int | None]()
    end_s = now_s + DEMOTED_S_MAX + TRIAL_S
    while now_s < end_s:
        now_s += 0.2
        ranked = ask_first(ranking, now_s, draw)
        asked |= {ranked.slots[0], ranked.tried}
    assert asked >= {0, 1}, "both of the closest"


@given(st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)), st.integers(0, 9))
def test_the_demoted_come_last_and_each_replica_once(
    failed: set[str], slow: set[str], seed: int
) -> None:
    ranking = ReplicaRanking()
    for node in sorted(slow):
        for _ in range(ANSWERS_MIN):
            ranking.note_answered(node, 0.2, 0.0)
    for node in sorted(failed):
        ranking.note_failed(node, 0.0)
    ranked = order_of(ranking, 0.5, seed)

    is_last = [NODES[slot] in failed for slot in ranked.slots]
    assert sorted(ranked.slots) == [0, 1, 2, 3]
    assert is_last == sorted(is_last)
    assert ranked.tried is None


# ---------------------------------------------------------------- demotion and forgiveness


def test_a_replica_that_was_not_asked_is_never_marked() -> None:
    ranking = ReplicaRanking()
    for _ in range(50):
        ranking.asked("n0", 0.0)
        ranking.note_answered("n0", 0.001, 0.0)
        ranking.ended("n0")

    assert ranking.demoted_count(0.0) == 0
    assert 1 in firsts(ranking, 0.0)


def test_overtaken_now_and_then_is_not_demoted() -> None:
    ranking = ReplicaRanking()
    for at in range(100):
        for _ in range(OVERTAKEN_MAX - 1):
            ranking.note_overtaken("n0", float(at), float(at))
        ranking.note_answered("n0", 0.001, float(at))

    assert ranking.demoted_count(100.0) == 0


def test_demotions_in_a_row_grow_up_to_a_bound() -> None:
    ranking, now_s, lengths = ReplicaRanking(), 0.0, list[float]()
    for _ in range(6):
        ranking.note_failed("n0", now_s)
        length_s = 0.0
        while ranking.demoted_count(now_s + length_s):
            length_s += 0.5
        lengths.append(length_s)
        now_s += length_s

    assert lengths == [1.0, 2.0, 4.0, 8.0, DEMOTED_S_MAX, DEMOTED_S_MAX]


def test_failures_while_demoted_make_it_no_longer() -> None:
    ranking = ReplicaRanking()
    for at_s in (0.0, 0.3, 0.6, 0.9):
        ranking.note_failed("n0", at_s)

    assert ranking.demoted_count(0.99) == 1
    assert ranking.demoted_count(1.0) == 0


def test_on_probation_one_read_tries_a_replica_and_the_others_wait() -> None:
    ranking = ReplicaRanking()
    ranking.note_failed("n0", 0.0)
    ranking.note_failed("n1", 0.0)
    draw = drawing(0)
    found = [ask_first(ranking, 1.0, draw) for _ in range(10)]
    silent = [ask_first(ranking, 1.0 + TRIAL_S, draw) for _ in range(10)]

    for ranked in (found, silent):
        assert sorted(one.tried for one in ranked if one.tried is not None) == [0, 1]
        assert {one.slots[0] for one in ranked} == {2}, "a good one is asked in any case"


def test_a_reader_that_does_not_ask_soon_leaves_the_trial_to_another() -> None:
    ranking = ReplicaRanking()
    ranking.note_failed("n0", 0.0)
    ranking.note_failed("n1", 0.0)
    draw = drawing(0)
    offered = [
        ranking.ranked(NODES, DISTANCES, draw, 1.0, may_try=True).tried for _ in range(5)
    ]
    again = [ask_first(ranking, 1.0 + OFFER_S, draw).tried for _ in range(5)]

    assert sorted(one for one in offered if one is not None) == [0, 1], "each replica once"
    assert sorted(one for one in again if one is not None) == [0, 1]


def test_a_replica_that_no_read_asks_is_due_for_a_shadow_request() -> None:
    ranking = ReplicaRanking()
    ranking.note_failed("n0", 0.0)
    soon = ranking.shadows_due(DEMOTED_S_MIN + SHADOW_S - 0.1)
    due_s = DEMOTED_S_MIN + SHADOW_S
    due = ranking.shadows_due(due_s)
    ranking.asked("n0", due_s)
    tried = ranking.shadows_due(due_s)
    ranking.note_shadow_failed("n0", due_s)
    demoted = ranking.demoted_count(due_s)
    ranking.forgive("n0", due_s)

    assert (soon, due, tried, demoted) == ([], ["n0"], [], 1)
    assert not ranking.has_marked


def test_a_replica_that_never_comes_back_is_forgotten() -> None:
    ranking, now_s, count = ReplicaRanking(), 0.0, 0
    ranking.note_failed("n0", now_s)
    while ranking.has_marked:
        now_s += DEMOTED_S_MAX + SHADOW_S
        assert ranking.shadows_due(now_s) == ["n0"]
        ranking.note_shadow_failed("n0", now_s)
        count += 1

    assert count == DEMOTIONS_MAX


def test_on_probation_a_replica_that_is_not_first_has_its_place() -> None:
    ranking = ReplicaRanking()
    ranking.note_failed("n2", 0.0)
    while_demoted = order_of(ranking, 0.5)
    on_probation = order_of(ranking, 1.0)

    assert while_demoted.slots[-1] == 2
    assert on_probation.slots[1] == 2, "in another rack"


def test_one_good_answer_forgives_and_the_memory_fades() -> None:
    ranking = ReplicaRanking()
    ranking.note_failed("n0", 0.0)
    ranking.note_failed("n0", 1.0)
    ranking.note_answered("n0", 0.01, 2.0)
    forgiven = ranking.demoted_count(2.0)
    ranking.note_failed("n0", 3.0)
    soon = ranking.demoted_count(3.0 + 3.9)
    ranking.note_answered("n0", 0.01, 8.0)
    ranking.note_answered("n0", 0.01, 8.0 + FORGOTTEN_S)
    ranking.note_failed("n0", 9.0 + FORGOTTEN_S)

    assert forgiven == 0
    assert soon == 1, "it failed again soon: the time goes on growing"
    assert ranking.demoted_count(10.0 + FORGOTTEN_S) == 0


def test_a_late_answer_on_probation_does_not_forgive_at_first() -> None:
    ranking, now_s, trials = ReplicaRanking(), 0.0, 0
    for _ in range(ANSWERS_MIN):
        ranking.note_answered("n0", 0.1, now_s)
    ranking.note_failed("n0", now_s)
    late_s = 0.1 * USUAL_MULTIPLE * 10
    while ranking.demoted_count(now_s):
        now_s += DEMOTED_S_MAX
        ranking.note_answered("n0", late_s, now_s)
        trials += 1

    assert trials == 5, "each late answer doubles the usual time"


def test_a_replica_demoted_by_chance_is_forgiven_before_its_time() -> None:
    ranking = ReplicaRanking()
    for _ in range(OVERTAKEN_MAX):
        ranking.note_overtaken("n0", 0.0, 0.0)
    before = ranking.demoted_count(0.1)
    ranking.note_answered("n0", 0.001, 0.1)

    assert (before, ranking.demoted_count(0.1)) == (1, 0)


# ---------------------------------------------------------------- handicaps


def answered(ranking: ReplicaRanking, took_s: dict[str, float], now_s: float) -> None:
    for node, one_s in took_s.items():
        for _ in range(ANSWERS_MIN * 20):
            ranking.note_answered(node, one_s, now_s)


def test_the_clearly_slower_of_equals_comes_later_until_it_is_clearly_better() -> None:
    ranking = ReplicaRanking()
    answered(ranking, {"n0": 0.010, "n1": 0.010 * CLEARLY * 1.1}, 0.0)
    slower = firsts(ranking, 0.0)
    answered(ranking, {"n1": 0.017}, 30.0)
    answered(ranking, {"n0": 0.010}, 30.0)
    still = firsts(ranking, 30.0)
    answered(ranking, {"n1": 0.012, "n0": 0.010}, 60.0)

    assert slower == still == {0}
    assert firsts(ranking, 60.0) == {0, 1}


def test_a_far_replica_never_comes_first_for_being_faster() -> None:
    ranking = ReplicaRanking()
    answered(ranking, {"n0": 0.5, "n1": 0.5, "n2": 0.001, "n3": 0.001}, 0.0)

    assert firsts(ranking, 0.0) == {0, 1}


def test_an_unknown_latency_is_as_good_as_the_best() -> None:
    ranking = ReplicaRanking()
    answered(ranking, {"n0": 0.010}, 0.0)

    assert firsts(ranking, 0.0) == {0, 1}


def test_the_busier_of_equals_comes_later() -> None:
    ranking = ReplicaRanking()
    for _ in range(PENDING_MORE - 1):
        ranking.asked("n0", 0.0)
    before = firsts(ranking, 0.0)
    ranking.asked("n0", 0.0)
    busier = firsts(ranking, 0.0)
    for _ in range(PENDING_MORE + 5):
        ranking.ended("n0")

    assert (before, busier) == ({0, 1}, {1})
    assert ranking.pending("n0") == 0


def test_exploring_ignores_handicaps() -> None:
    ranking = ReplicaRanking()
    answered(ranking, {"n0": 0.001, "n1": 0.5}, 0.0)
    found = {
        ranking.ranked(NODES, DISTANCES, drawing(seed), REREAD_S, is_exploring=True).slots[0]
        for seed in range(30)
    }

    assert found == {0, 1}
    assert order_of(ranking, REREAD_S).has_handicaps


@pytest.mark.parametrize("count", [REPLICAS_MAX + 10])
def test_the_number_of_marked_replicas_is_bounded(count: int) -> None:
    ranking = ReplicaRanking()
    for number in range(count):
        ranking.note_failed(f"m{number}", 0.0)

    assert ranking.demoted_count(0.0) == REPLICAS_MAX


def test_a_late_request_fails_a_replica_only_if_it_was_silent_to_all() -> None:
    ranking = ReplicaRanking()
    ranking.note_answered("a", 0.001, 10.1)
    ranking.note_late("a", 10.0, 10.9)
    assert not ranking.is_demoted("a", 10.9), "it has answered another request meanwhile"

    ranking.note_late("a", 10.2, 10.2 + SILENT_S - 0.01)
    assert not ranking.is_demoted("a", 10.5), "it may only be slow"

    ranking.note_late("a", 10.2, 10.2 + SILENT_S)
    assert ranking.is_demoted("a", 10.5)


def well_known(node: str, took_s: float, *, until_s: float) -> ReplicaRanking:
    ranking = ReplicaRanking()
    for number in range(ANSWERS_MIN):
        ranking.note_answered(node, took_s, until_s - 0.01 * number)
    return ranking


def test_one_overtaking_demotes_a_replica_that_said_nothing_meanwhile() -> None:
    ranking = well_known("a", 0.001, until_s=10.0)
    ranking.note_overtaken("a", 10.1, 10.1 + 1.5 * OVERTAKEN_SILENT_S)

    assert ranking.is_demoted("a", 10.2)
    assert ranking.demotions == {DemotionReason.SILENT: 1}


@pytest.mark.parametrize(
    ("usual_s", "waited_s", "heard_s"),
    [
        (0.001, OVERTAKEN_SILENT_S / 2, None),
        (0.02, 0.02 * USUAL_MULTIPLE * 0.9, None),
        (0.001, 10 * OVERTAKEN_SILENT_S, 10.11),
    ],
    ids=["too soon to say", "not long for it", "it answered somebody else"],
)
def test_one_overtaking_alone_demotes_no_replica_that_may_be_well(
    usual_s: float, waited_s: float, heard_s: float | None
) -> None:
    ranking = well_known("a", usual_s, until_s=10.0)
    if heard_s is not None:
        ranking.note_heard("a", heard_s)
    ranking.note_overtaken("a", 10.1, 10.1 + waited_s)

    assert not ranking.is_demoted("a", 10.1 + waited_s)


def test_demotions_are_counted_by_reason() -> None:
    ranking = well_known("a", 0.001, until_s=10.0)
    ranking.note_failed("a", 10.0)
    ranking.note_answered("a", 5.0, 12.0)
    ranking.note_answered("a", 0.001, 13.0)
    for _ in range(OVERTAKEN_MAX):
        ranking.note_overtaken("a", 14.0, 14.0)
    ranking.note_shadow_failed("a", 30.0)

    assert ranking.demotions == dict.fromkeys(DemotionReason, 1)
