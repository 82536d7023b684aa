"""Snapshots of the cluster: nodes that died, stay candidates, or are held back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import (
    InvalidArgumentError,
    InvalidConfigError,
    NotEnoughNodesError,
    NotFoundError,
)
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement_statistics import CountedPolicy, PlacementStatistics
from topology.policies.default import AnyNode
from topology.policies.region_aware import RegionAware
from topology.policy import PlacementRequest
from topology.resolvers import StaticTable, resolved
from topology.switches import PlacementSwitches
from topology.tree import Tree, TreeNode

UNKNOWN = Location("unknown", "unknown")


def cluster(text: str, *, stabilize_s: float = 0.0, departures_max: int = 3) -> Membership:
    """`n1/a n2/b`: writable nodes, each in rack r of its region."""
    return Membership.of(
        MembershipConfig(
            default_location=UNKNOWN, stabilize_s=stabilize_s, departures_max=departures_max
        ),
        [
            KnownNode(
                node=word.split("/")[0],
                location=Location(word.split("/")[1], "r"),
                state=NodeUse.WRITABLE,
            )
            for word in text.split()
        ],
    )


def after(members: Membership, writable: str, readonly: str = "", *, now_s: float = 0.0) -> str:
    return " ".join(sorted(registered(members, writable, readonly, now_s=now_s)[1]))


def registered(
    members: Membership, writable: str, readonly: str = "", *, now_s: float = 0.0
) -> tuple[Membership, frozenset[str]]:
    return members.changed(
        writable=writable.split(), readonly=readonly.split(), locations={}, now_s=now_s
    )


def test_a_change_returns_the_nodes_that_died_including_read_only_ones() -> None:
    members = cluster("n1/a n2/a n3/b")
    readonly, dead = registered(members, "n1", "n2")

    assert dead == {"n3"}
    assert after(readonly, "n1", "n2") == ""
    assert after(readonly, "n1") == "n2"
    assert readonly.state_of("n2") is NodeUse.READONLY


def test_a_change_leaves_the_earlier_snapshot_unchanged() -> None:
    members = cluster("n1/a n2/a")
    registered(members, "")

    assert members.writable.count == 2


def test_the_location_of_a_departed_node_is_remembered() -> None:
    left, _ = registered(cluster("n1/a n2/b"), "n1")
    back, _ = registered(left, "n1 n2")

    assert left.location_of("n2") == Location("b", "r")
    assert back.writable.counts == {"a": 1, "b": 1}
    assert back.location_of("never heard of") == UNKNOWN


def test_a_node_whose_location_becomes_known_moves_there_at_once() -> None:
    joined, _ = registered(cluster(""), "n1")
    assert joined.writable.counts == {"unknown": 1}

    assert joined.relocated({"n1": Location("a", "r")}).writable.counts == {"a": 1}


def test_a_draining_node_is_up_and_not_placed_on() -> None:
    members = cluster("n1/a n2/a").draining(["n1"])

    assert [node.node for node in members.writable.nodes()] == ["n2"]
    assert members.up.count == 2


def test_a_node_goes_on_draining_until_it_is_restored_or_has_left() -> None:
    draining = cluster("n1/a n2/a").draining(["n1"])
    later, _ = registered(draining, "n1 n2")
    left, _ = registered(later, "n2")
    back, _ = registered(left, "n1 n2")

    assert later.state_of("n1") is NodeUse.DRAINING
    assert later.restored(["n1"]).state_of("n1") is NodeUse.WRITABLE
    assert back.state_of("n1") is NodeUse.WRITABLE


def test_a_departed_node_is_a_last_resort_for_the_configured_time() -> None:
    left, _ = registered(cluster("n1/a n2/b", stabilize_s=30.0), "n1", now_s=100.0)
    policy = AnyNode(default_location=UNKNOWN)

    def placed(now_s: float) -> set[str]:
        request = PlacementRequest(ensemble_size=2, write_quorum=2, ack_quorum=1, now_s=now_s)
        return set(policy.new_ensemble(left, request, random.Random(1)).nodes)

    assert placed(129.0) == {"n1", "n2"}
    with pytest.raises(NotEnoughNodesError, match="not excluded; 1 are available: 1 short"):
        placed(130.0)


def test_a_flapping_node_is_held_back_while_others_suffice() -> None:
    members = cluster("n1/a n2/a n3/a", departures_max=1)
    for now_s in (0.0, 10.0):
        members, _ = registered(members, "n1 n2", now_s=now_s)
        members, _ = registered(members, "n1 n2 n3", now_s=now_s)
    policy = AnyNode(default_location=UNKNOWN)

    def ever_placed(size: int, now_s: float) -> set[str]:
        request = PlacementRequest(
            ensemble_size=size, write_quorum=1, ack_quorum=1, now_s=now_s
        )
        return {
            node
            for seed in range(30)
            for node in policy.new_ensemble(members, request, random.Random(seed)).nodes
        }

    assert members.held_back(20.0) == {"n3"}
    assert ever_placed(2, 20.0) == {"n1", "n2"}
    assert ever_placed(3, 20.0) == {"n1", "n2", "n3"}
    assert ever_placed(2, 1_000.0) == {"n1", "n2", "n3"}


# ---------------------------------------------------------------- the tree


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.sampled_from("xy"))))
def test_a_tree_changed_step_by_step_equals_one_built_at_once(
    steps: list[tuple[int, str, str]],
) -> None:
    tree, held = Tree.of([]), dict[int, TreeNode]()
    for number, region, rack in steps:
        node = TreeNode(f"n{number}", Location(region, rack))
        before = held.pop(number, None)
        if before is not None:
            tree = tree.without(before)
        else:
            held[number] = node
            tree = tree.with_node(node)

    assert tree == Tree.of(held.values())
    assert tree.count == len(held)


def test_a_tree_has_one_depth_and_each_node_once() -> None:
    shallow = TreeNode("n1", Location.parse("/a/r"))
    deep = TreeNode("n2", Location.parse("/a/row/r"))

    with pytest.raises(InvalidArgumentError, match="has 3 parts, others have 2"):
        Tree.of([shallow, deep])
    with pytest.raises(InvalidArgumentError, match="has 3 parts, others have 2"):
        Tree.of([shallow]).with_node(deep)
    with pytest.raises(InvalidArgumentError, match="duplicate node 'n1'"):
        Tree.of([shallow, shallow])


# ---------------------------------------------------------------- locations of nodes


def test_a_table_overrides_registration_and_a_script_overrides_both() -> None:
    table = StaticTable.parse(
        '[locations]\n"n2" = "/t/r2"\n"n*" = "/t/any"\n', "locations.toml"
    )

    assert resolved(
        ["n1", "n2", "n3", "m1", "m2"],
        registered={"n2": Location("r", "r"), "m1": Location("r", "r")},
        table=table,
        scripted={"n3": Location("s", "r")},
        default=UNKNOWN,
    ) == {
        "n1": Location("t", "any"),
        "n2": Location("t", "r2"),
        "n3": Location("s", "r"),
        "m1": Location("r", "r"),
        "m2": UNKNOWN,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= 1", r"t.toml is not TOML: .*line 1"),
        ("[places]", "has an unknown key 'places'; use locations"),
        ('[locations]\nn1 = "a/r"', "node 'n1': location 'a/r' is not of the form"),
        ("[locations]\nn1 = 7", "must be a string"),
        ('[locations]\nn1 = "/a/r"\nn2 = "/a/w/r"', "location /a/w/r of node 'n2' has 3 parts"),
    ],
)
def test_an_invalid_table_is_refused_as_a_whole(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        StaticTable.parse(text, "t.toml")


# ---------------------------------------------------------------- switches, counts


def test_a_forbidden_region_gets_nothing_new_until_it_is_allowed_again() -> None:
    known = frozenset("abc")
    switches = PlacementSwitches().forbidding("b", known)
    policy = RegionAware(default_location=UNKNOWN)
    request = PlacementRequest(ensemble_size=2, write_quorum=2, ack_quorum=2)
    members = cluster("n1/a n2/b n3/c")

    def placed(switches: PlacementSwitches) -> set[str]:
        under = switches.applied(policy)
        return {
            node
            for seed in range(20)
            for node in under.new_ensemble(members, request, random.Random(seed)).nodes
        }

    assert placed(switches) == {"n1", "n3"}
    assert placed(switches.allowing("b")) == {"n1", "n2", "n3"}
    assert PlacementSwitches.from_document(switches.document()) == switches
    with pytest.raises(NotFoundError, match="unknown region 'z'; known regions: a, b, c"):
        switches.forbidding("z", known)


def test_a_policy_counts_what_it_answered_and_refused() -> None:
    policy = CountedPolicy(AnyNode(default_location=UNKNOWN))
    members = cluster("n1/a n2/b")
    for size in (1, 2, 3):
        request = PlacementRequest(ensemble_size=size, write_quorum=1, ack_quorum=1)
        try:
            policy.new_ensemble(members, request, random.Random(0))
        except NotEnoughNodesError:
            assert size == 3

    counts = policy.statistics().outcomes["new_ensemble"]
    assert counts == {"strict": 2, "not_enough_nodes": 1}
    assert PlacementStatistics.total([policy.statistics()] * 2) == PlacementStatistics(
        {"new_ensemble": {"strict": 4, "not_enough_nodes": 2}}
    )


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(NodeUse)),
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(NodeUse)),
)
def test_changed_members_give_the_same_tree_as_building_it_again(
    before: dict[str, NodeUse], changed: dict[str, NodeUse]
) -> None:
    def member(node: str, state: NodeUse) -> KnownNode:
        return KnownNode(node=node, location=Location(f"r{ord(node) % 2}", "rack"), state=state)

    config = MembershipConfig(default_location=UNKNOWN)
    members = Membership.of(config, [member(*one) for one in before.items()])

    found = members.with_members([member(*one) for one in changed.items()])

    anew = Membership.of(config, [member(*one) for one in (before | changed).items()])
    assert dict(found.members) == dict(anew.members)
    assert found.writable == anew.writable
