"""Repair plans for fragments: compared with brute force, and case by case."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geolog.protocol.placement_plan import FragmentPlan, PlacementPlanner, RepairAims
from tests.pure.protocol.fragment_layouts import Layout, layout
from topology.placement import Adherence, adherence_of
from topology.ring.window_rule import rank_of
from topology.stream_policy import PlacementTerms, PolicyKind


def planned(one: Layout, **aims: bool) -> FragmentPlan:
    return PlacementPlanner(one.seen, RepairAims(**aims)).plan(one.record, 0)


@pytest.mark.parametrize(
    ("nodes", "after", "adherence"),
    [
        # A STRICT fragment stays as it is, even with nodes that are down.
        ("aabbcc | aabbcc", "aabbcc", "strict"),
        ("aabbcc- | aabbcc", "aabbcc", "strict"),
        # A disk that was given up is replaced, preferably in its own region.
        ("aabbcx c | aabbcc", "aabbcc", "strict"),
        ("aabbccx | d", "aabbcd", "strict"),
        # Badly placed, with better nodes available: as few changes as it takes.
        ("aaabbb | cc", None, "strict"),
        ("aaaaaa | bbcc", None, "strict"),
        # Without a third region the fragment stays.
        ("aaabbb | ab", "aaabbb", "soft"),
        # FAIL becomes SOFT where STRICT is impossible.
        ("aaaaaa | bb", None, "soft"),
    ],
)
def test_fragments_come_back_to_their_policy(
    nodes: str, after: str | None, adherence: str
) -> None:
    one = layout(nodes, ack=4)

    plan = planned(one)

    assert plan.after.value == adherence
    if after is not None:
        assert one.regions_after(dict(plan.changes)) == after


@pytest.mark.parametrize(
    ("nodes", "survive", "moved_count", "obstacle"),
    [
        # STRICT without any one region, and a fourth has nodes again.
        ("aaabbbcc | abddd", "1 region and 1 node", 2, ""),
        ("aaabbbcc | abddd", "1 region", 0, ""),
        # The nodes that it takes are missing: the fragment stays, and the plan says so.
        ("aaabbbcc | aabb", "1 region and 1 node", 0, "survives 1 region and 1 node"),
        # Without the nodes that it takes, it comes as near as possible.
        ("aaaabbbb | aacc", "1 region and 1 node", 2, "survives 1 region and 1 node"),
    ],
)
def test_fragments_come_back_to_their_promise(
    nodes: str, survive: str, moved_count: int, obstacle: str
) -> None:
    one = layout(nodes, ack=5)

    plan = PlacementPlanner(one.seen).plan(one.record, 0, survive=survive)

    assert plan.after is Adherence.STRICT
    assert len(plan.changes) == moved_count
    assert obstacle in plan.obstacle
    assert bool(plan.obstacle) == bool(obstacle)
    assert PlacementPlanner(one.seen).is_mendable(one.record, 0, survive) == bool(moved_count)


def test_nodes_that_are_down_are_replaced_only_on_request() -> None:
    one = layout("aabbc-c- | abdd", ack=4)

    assert not planned(one).changes
    plan = planned(one, replaces_down=True)

    assert set(plan.changes) == {4, 5}
    assert "c" not in one.regions_after(dict(plan.changes))
    assert plan.after is Adherence.STRICT


def test_a_lost_region_is_replaced_as_far_as_the_others_can_hold() -> None:
    one = layout("aabbc-c- | ab", ack=4)

    plan = planned(one, replaces_down=True)

    assert sorted(one.regions_after(dict(plan.changes))) == list("aaabbb")
    assert plan.after is Adherence.SOFT
    assert "strict" in plan.obstacle


def test_if_not_all_can_go_as_many_go_as_possible() -> None:
    one = layout("aabbcxcx | a", ack=4)

    plan = planned(one)

    assert len(plan.changes) == 1
    assert plan.obstacle


def test_copies_in_a_forbidden_region_stay_until_asked_to_leave() -> None:
    one = layout("aabbcc | aabbdd", ack=4, forbidden="c")

    assert not planned(one).changes
    plan = planned(one, leaves_forbidden=True)

    assert one.regions_after(dict(plan.changes)) == "aabbdd"


def test_a_planner_counts_its_searches_and_their_outcomes() -> None:
    one = layout("aaaaaa | bb", ack=4)
    planner = PlacementPlanner(one.seen)

    assert planner.statistics().outcomes == {}
    planner.plan(one.record, 0)

    assert planner.statistics().outcomes["repair"] == {"fail": 1, "soft": 1}


def test_the_plan_tells_the_cost_of_leaving_a_forbidden_region() -> None:
    plan = planned(layout("aabbcc | ab", ack=4, forbidden="c"), leaves_forbidden=True)

    assert (plan.placed, plan.after) == (Adherence.STRICT, Adherence.SOFT)


def test_nothing_new_is_placed_in_a_forbidden_region() -> None:
    one = layout("aaabbb | cd", ack=4, forbidden="c")

    plan = planned(one)

    assert "c" not in one.regions_after(dict(plan.changes))


def test_a_node_that_takes_nothing_new_keeps_its_slot_and_gets_no_other() -> None:
    one = layout("a*a*b*b*cx c | c", ack=4)

    plan = planned(one)

    assert set(plan.changes) == {4}
    assert one.regions_after(dict(plan.changes)) == "aabbcc"


def test_a_copy_that_belongs_with_its_writer_has_no_other_node_to_go_to() -> None:
    terms = PlacementTerms(policy=PolicyKind.LOCAL_NODE)
    one = layout("ax | abc", ack=1, min_regions=1, terms=terms)

    plan = planned(one)

    assert not plan.changes
    assert plan.obstacle


def test_the_same_fragment_gets_the_same_plan_again() -> None:
    one = layout("aaabbb | ccccdddd", ack=4)
    assert planned(one) == planned(one)


def test_a_hopeless_fragment_is_searched_once() -> None:
    one = layout("aaabbb | ab", ack=4)
    planner = PlacementPlanner(one.seen)
    assert planner.plan(one.record, 0) is planner.plan(one.record, 0)


_STATES = st.sampled_from(["", "", "", "-", "x", "*"])
_NODES = st.lists(st.tuples(st.sampled_from("abcd"), _STATES).map("".join), max_size=4)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), _STATES).map("".join), min_size=3, max_size=4),
    _NODES,
    st.integers(2, 3),
    st.integers(1, 2),
    st.sampled_from([2, 3, None]),
)
def test_a_plan_is_as_good_as_any_with_as_few_changes(
    members: list[str], free: list[str], ack: int, min_regions: int, write: int | None
) -> None:
    if write is not None and write < ack:
        return
    one = layout(
        f"{''.join(members)} | {''.join(free)}", ack=ack, min_regions=min_regions, write=write
    )
    plan = planned(one)

    best = _best(one)
    changed = one.regions_after(dict(plan.changes))
    assert len(changed) == len(members)
    assert rank_of(plan.after) >= rank_of(plan.before)
    if best is not None:
        adherence, changes_min = best
        assert plan.after is adherence
        assert len(plan.changes) == changes_min


def _best(one: Layout) -> tuple[Adherence, int] | None:
    """Try all rings without the given-up disks: the best adherence, and the fewest changes.

    None if every such ring is FAIL.
    """
    seen, quorum = one.seen, one.record.quorum
    ring = [member.instance for member in one.fragment.ensemble]
    up = {
        node for node, known in seen.members.members.items() if known.state.value == "writable"
    }
    movable = [node for node in sorted(up) if node not in seen.replaced]
    found: dict[Adherence, int] = {}
    slots = [sorted({*movable, node} - seen.replaced) for node in ring]
    for tried in itertools.product(*slots):
        if len(set(tried)) < len(tried):
            continue
        regions = [seen.members.location_of(node).region for node in tried]
        adherence = adherence_of(quorum, regions)
        changes = sum(new != old for new, old in zip(tried, ring, strict=True))
        found[adherence] = min(changes, found.get(adherence, len(ring)))
    for wanted in (Adherence.STRICT, Adherence.SOFT):
        if wanted in found:
            return wanted, found[wanted]
    return None
