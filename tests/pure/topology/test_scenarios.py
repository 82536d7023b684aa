"""Wrong what-ifs are refused with the reason; odd ones are answered right."""

import random

import pytest

from topology.evaluation import ScenarioAnswer, evaluate
from topology.json_values import Json

MOVED: dict[str, Json] = {"relocate": {"a0": "/z/r"}, "leave_and_rejoin": ["a0"]}
SIZES: dict[str, Json] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def nodes(text: str) -> list[Json]:
    """`n1=/a/r1 n2=/a/r2:down`."""
    found: list[Json] = []
    for word in text.split():
        name, rest = word.split("=")
        location, _, state = rest.partition(":")
        found.append({"id": name, "location": location, "state": state or "writable"})
    return found


def answer(
    policy: str,
    up: str,
    operation: str,
    args: dict[str, Json],
    *,
    params: dict[str, Json] | None = None,
    seed: int = 0,
) -> ScenarioAnswer:
    document: dict[str, Json] = {
        "id": "x",
        "policy": policy,
        "nodes": nodes(up),
        "params": params or {},
        "operation": operation,
        "args": args,
    }
    return evaluate(document, 0, random.Random(seed))


def view(policy: str, up: list[Json], params: dict[str, Json]) -> Json:
    """The regions as the policy sees them."""
    document: dict[str, Json] = {
        "policy": policy,
        "nodes": up,
        "params": params,
        "operation": "topology_view",
        "args": {},
    }
    return evaluate(document, 0, random.Random(0))["regions"]


@pytest.mark.parametrize(
    ("policy", "params", "region"),
    [
        ("region_aware", {}, "UnknownRegion"),
        ("region_aware", {"default_location": "/z/r0"}, "z"),
        (
            "region_aware",
            {"default_location": "/default-region/default-rack"},
            "default-region",
        ),
        ("rack_aware", {}, "default-region"),
        ("zone_aware", {}, "default-zone"),
    ],
)
def test_a_node_of_unknown_location_is_in_the_default_region(
    policy: str, params: dict[str, Json], region: str
) -> None:
    up: list[Json] = [{"id": "n", "location": None}, {"id": "a", "location": "/a/r1"}]

    assert view(policy, up, params) == {"a": ["a"], region: ["n"]}


def test_the_default_location_of_resolvers_counts_as_unknown() -> None:
    up = nodes("n=/default-region/default-rack a=/a/r1")

    assert view("region_aware", up, {}) == {"a": ["a"], "UnknownRegion": ["n"]}
    assert view("zone_aware", up, {}) == {"a": ["a"], "default-region": ["n"]}


def test_a_client_of_unknown_location_has_no_region_of_its_own() -> None:
    args: dict[str, Json] = {"ensemble": ["n", "a0"], "write_set": [0, 1]}
    nowhere: dict[str, Json] = {"local_location": "/default-region/default-rack"}
    up = "n=/default-region/default-rack a0=/a/r0"

    found = answer("region_aware", up, "reorder_read", args, params=nowhere)

    assert found["write_set"] == [0, 1]


NINE = " ".join(f"{region}{rack}=/{region}/r{rack}" for region in "abc" for rack in range(3))


@pytest.mark.parametrize(
    ("policy", "up", "operation", "args", "params", "error", "message"),
    [
        (
            "rack",
            NINE,
            "topology_view",
            {},
            {},
            "invalid_argument",
            "must be one of default, local",
        ),
        (
            "default",
            "n=/a/r:up",
            "topology_view",
            {},
            {},
            "invalid_argument",
            "'up'; it must be one of",
        ),
        (
            "default",
            NINE,
            "place",
            {},
            {},
            "invalid_argument",
            "unknown operation 'place'; known operations:",
        ),
        ("default", "n=", "topology_view", {}, {}, "invalid_argument", "location '' is not of"),
        ("default", "n=/r", "topology_view", {}, {}, "invalid_argument", "form /REGION/RACK"),
        (
            "default",
            "n=/a/r m=/a/w/r",
            "topology_view",
            {},
            {},
            "invalid_argument",
            "location /a/w/r of node 'm' has 3 parts, others have 2",
        ),
        (
            "default",
            "n=/a/r n=/a/r",
            "topology_view",
            {},
            {},
            "invalid_argument",
            "duplicate node 'n'",
        ),
        (
            "rack_aware",
            NINE,
            "new_ensemble",
            {**SIZES, "write_quorum": 4},
            {},
            "invalid_argument",
            "the smallest ensemble that can hold it is 4",
        ),
        (
            "default",
            NINE,
            "new_ensemble",
            {**SIZES, "ack_quorum": 4},
            {},
            "invalid_argument",
            "ack_quorum 4 exceeds write_quorum 3",
        ),
        (
            "region_aware",
            NINE,
            "new_ensemble",
            {"ensemble_size": 9, "write_quorum": 9, "ack_quorum": 6},
            {"regions_to_write": ["a", "b", "c"], "min_regions_for_durability": 3},
            "invalid_argument",
            "the smallest legal ack quorum is 7",
        ),
        (
            "region_aware",
            NINE,
            "new_ensemble",
            SIZES,
            {"regions_to_write": ["a"]},
            "invalid_config",
            "min_regions_for_durability 2 exceeds the 1 of regions_to_write",
        ),
        (
            "region_aware",
            NINE,
            "new_ensemble",
            {**SIZES, "ack_quorum": 3},
            {"regions_to_write": ["a", "b", "c"], "disallowed_regions": ["a", "b"]},
            "not_enough_nodes",
            "nodes are up and allowed in 1 .c: 3.: 1 short; .* forbidden in a, b",
        ),
        (
            "rack_aware",
            "a=/x/r1 b=/x/r1 c=/x/r1 d=/x/r2",
            "new_ensemble",
            {"ensemble_size": 4, "write_quorum": 2, "ack_quorum": 2},
            {"enforce_min_racks": True},
            "not_enough_nodes",
            "at least 2 nodes must be outside rack /x/r1; there are 1: 1 short",
        ),
        (
            "zone_aware",
            NINE,
            "new_ensemble",
            {**SIZES, "ensemble_size": 4},
            {},
            "invalid_argument",
            "ensemble_size 4 is not a multiple of write_quorum 3: .*; 6 is",
        ),
        (
            "zone_aware",
            NINE,
            "new_ensemble",
            SIZES,
            {"min_zones": 4},
            "invalid_config",
            "min_zones 4 exceeds desired_zones 3",
        ),
        (
            "local_node",
            NINE,
            "new_ensemble",
            SIZES,
            {"local_location": "/a/r1"},
            "invalid_argument",
            "ensemble_size must be 1 for policy 'local_node'",
        ),
        (
            "default",
            NINE,
            "topology_view",
            {"relocate": {"z": "/a/r"}},
            {},
            "invalid_argument",
            "relocate: unknown node 'z'",
        ),
        (
            "default",
            NINE,
            "topology_view",
            {},
            {"local_locatoin": "/a/r"},
            "invalid_config",
            "unknown key 'local_locatoin'; did you mean 'local_location'",
        ),
        (
            "default",
            NINE,
            "topology_view",
            {},
            {"local_location": 7},
            "invalid_config",
            "^scenario x.params.local_location must be a string, got 7$",
        ),
        (
            "default",
            NINE,
            "topology_view",
            {"relocate": {"a0": "/z"}},
            {},
            "invalid_argument",
            "^scenario x.args.relocate.a0: location '/z' is not of the form",
        ),
        (
            "rack_aware",
            NINE,
            "reorder_read",
            {"ensemble": ["a0"], "write_set": [1]},
            {},
            "invalid_argument",
            "write_set has 1; the ensemble has indices 0 to 0",
        ),
        (
            "rack_aware",
            NINE,
            "replace_node",
            {**SIZES, "ensemble": ["a0", "a1", "a2"], "replace": "b0"},
            {},
            "invalid_argument",
            "'b0' is not in the ensemble a0, a1, a2",
        ),
        (
            "region_aware",
            NINE,
            "replace_node",
            {**SIZES, "ensemble": ["a0", "b1", "cc2"], "replace": "a0"},
            {},
            "invalid_argument",
            "args.ensemble: unknown node 'cc2'; did you mean 'c2'",
        ),
        (
            "region_aware",
            NINE,
            "replace_node",
            {**SIZES, "ensemble": ["a0", "b1", "c2"], "replace": "b11"},
            {},
            "invalid_argument",
            "args.replace: unknown node 'b11'; did you mean 'b1'",
        ),
        (
            "rack_aware",
            NINE,
            "repair_to_adhere",
            {**SIZES, "ensemble": ["a0", "b1", "x"]},
            {},
            "invalid_argument",
            "args.ensemble: unknown node 'x'",
        ),
        (
            "default",
            "",
            "topology_view",
            {"leave_and_rejoin": ["z"]},
            {},
            "invalid_argument",
            "leave_and_rejoin: unknown node 'z'; there are no nodes",
        ),
        (
            "default",
            NINE,
            "new_ensemble",
            SIZES,
            {"stabilize_seconds": 10**400},
            "invalid_config",
            "stabilize_seconds has 401 digits; the largest",
        ),
        (
            "default",
            NINE,
            "new_ensemble",
            SIZES,
            {"stabilize_seconds": -1},
            "invalid_config",
            "stabilize_seconds must be >= 0, got -1",
        ),
        (
            "rack_aware",
            NINE,
            "new_ensemble",
            SIZES,
            {"weight_by_free_space": True, "free_space": {"a0": 10**400}},
            "invalid_config",
            "free_space.a0 has 401 digits",
        ),
        (
            "rack_aware",
            NINE,
            "new_ensemble",
            SIZES,
            {"weight_by_free_space": True, "free_space": {"a0": -5}},
            "invalid_config",
            "free_space.a0 must be >= 0, got -5",
        ),
    ],
)
def test_a_scenario_that_cannot_be_answered_says_why(
    policy: str,
    up: str,
    operation: str,
    args: dict[str, Json],
    params: dict[str, Json],
    error: str,
    message: str,
) -> None:
    found = answer(policy, up, operation, args, params=params)

    assert (found["id"], found["error"]) == ("x", error)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(found["message"])


def test_a_scenario_that_is_not_an_object_is_answered_by_number() -> None:
    assert evaluate(7, 3, random.Random(0)) == {
        "error": "invalid_argument",
        "message": "scenario 3 must be an object, got 7",
    }


def test_a_seed_makes_the_answer_the_same() -> None:
    document: dict[str, Json] = {
        "policy": "default",
        "nodes": nodes(NINE),
        "operation": "new_ensemble",
        "args": SIZES,
        "seed": 5,
    }

    assert evaluate(document, 0, random.Random(1)) == evaluate(document, 0, random.Random(2))


def test_nodes_of_a_lost_region_are_replaced_one_after_another() -> None:
    up = NINE.replace("/c/r0", "/c/r0:down").replace("/c/r1", "/c/r1:down")
    up = up.replace("/c/r2", "/c/r2:down")
    params: dict[str, Json] = {"regions_to_write": ["a", "b", "c"]}
    sizes: dict[str, Json] = {"ensemble_size": 6, "write_quorum": 6, "ack_quorum": 4}
    ensemble = ["a0", "b0", "c0", "a1", "b1", "c1"]
    for lost in ("c0", "c1"):
        found = answer(
            "region_aware",
            up,
            "replace_node",
            {**sizes, "ensemble": list[Json](ensemble), "replace": lost},
            params=params,
        )
        ensemble[ensemble.index(lost)] = str(found["node"])

    assert sorted(node[0] for node in ensemble) == ["a", "a", "a", "b", "b", "b"]


def test_the_clients_region_and_rack_come_first() -> None:
    for seed in range(10):
        params: dict[str, Json] = {"local_location": "/b/r1"}
        by_region = answer(
            "region_aware", NINE, "new_ensemble", SIZES, params=params, seed=seed
        )
        by_rack = answer("rack_aware", NINE, "new_ensemble", SIZES, params=params, seed=seed)

        assert str(by_region["ensemble"])[2] == "b"
        assert str(by_rack["ensemble"])[2:4] == "b1"


def test_regions_durability_is_strict_only_if_any_region_may_go() -> None:
    params: dict[str, Json] = {"durability": "regions", "min_regions_for_durability": 2}
    for ensemble, adherence in (
        (["a0", "b0", "c0"], "strict"),
        (["a0", "a1", "b0"], "soft"),
        (["a0", "a1", "a2"], "fail"),
    ):
        args: dict[str, Json] = {**SIZES, "ensemble": list[Json](ensemble)}

        assert answer("region_aware", NINE, "check_adherence", args, params=params) == {
            "id": "x",
            "adherence": adherence,
        }


def test_a_replacement_that_is_not_strict_about_zones_prefers_a_known_zone() -> None:
    up = "a=/z1/u1 b=/z2/u1 c=/z3/u1 d=/z3/u2 e=/default-zone/default-upgradedomain"
    args: dict[str, Json] = {**SIZES, "ensemble": ["a", "b", "c"], "replace": "c"}
    for seed in range(10):
        found = answer(
            "zone_aware", up, "replace_node", args, params={"strict_zones": False}, seed=seed
        )

        assert (found["node"], found["adherence"]) == ("d", "strict")


@pytest.mark.parametrize(
    ("policy", "operation", "args", "expected"),
    [
        (
            "default",
            "topology_view",
            {"relocate": {"a0": "/z/r"}, "leave_and_rejoin": ["a0"]},
            "z",
        ),
        ("default", "cluster_changed", {"writable": ["a0"], "readonly": ["a1"]}, "a2"),
        ("rack_aware", "sticky_read", {"ensemble": ["a0", "b0"], "current": 1}, "0"),
        ("quorum", "quorum_coverage", {**SIZES, "responses": {"0": "ok", "1": "ok"}}, "True"),
        (
            "quorum",
            "quorum_coverage",
            {**SIZES, "responses": {"0": "ok", "1": "error"}},
            "False",
        ),
        ("quorum", "quorum_coverage", {**SIZES, "responses": {"9": "ok"}}, "indices 0 to 2"),
        (
            "quorum",
            "quorum_coverage",
            {**SIZES, "responses": {"0": "late"}},
            "must be one of ok",
        ),
        ("quorum", "write_set", {**SIZES, "entry_id": -1}, "args.entry_id must be >= 0"),
        ("quorum", "new_ensemble", SIZES, "needs a policy"),
        (
            "default",
            "new_ensemble_statistics",
            {**SIZES, "calls": 0},
            "calls must be 1 to",
        ),
        ("default", "check_acked", {**SIZES, "acked": []}, "True"),
        ("region_aware", "check_acked", {**SIZES, "acked": ["a0", "a1"]}, "True"),
        ("region_aware", "check_acked", {**SIZES, "acked": ["a0"]}, "False"),
        ("zone_aware", "check_acked", {**SIZES, "acked": ["a0", "b0"]}, "True"),
        ("rack_aware", "repair_to_adhere", {**SIZES, "ensemble": ["a0", "b0"]}, "has 2 nodes"),
        ("rack_aware", "sticky_read", {"ensemble": []}, "no node to stick to"),
        ("rack_aware", "sticky_read", {"ensemble": ["a0"], "current": 3}, "indices 0 to 0"),
        (
            "rack_aware",
            "reorder_read",
            {"ensemble": ["a0"], "write_set": [0, 0]},
            "duplicate index",
        ),
        ("rack_aware", "reorder_read", {"ensemble": "a0", "write_set": [0]}, "must be a list"),
        ("rack_aware", "reorder_read", {"ensemble": [7], "write_set": [0]}, "must be a string"),
        ("default", "new_ensemble", {**SIZES, "ensemble_size": True}, "must be a whole number"),
        ("default", "new_ensemble", {**SIZES, "ensemble_size": 0}, "fail"),
    ],
)
def test_the_other_questions_are_answered(
    policy: str, operation: str, args: dict[str, Json], expected: str
) -> None:
    found = answer(policy, NINE, operation, args)

    assert expected in str({name: value for name, value in found.items() if name != "id"})


def test_the_local_node_is_the_only_choice() -> None:
    one: dict[str, Json] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    here: dict[str, Json] = {"local_location": "/b/r1"}

    def asked(operation: str, args: dict[str, Json], params: dict[str, Json]) -> ScenarioAnswer:
        return answer("local_node", NINE, operation, {**one, **args}, params=params)

    placed = asked("new_ensemble", {}, here)
    elsewhere = asked("new_ensemble", {"exclude": ["b1"]}, here)
    replaced = asked("replace_node", {"ensemble": ["b1"], "replace": "b1"}, here)
    assert (placed["ensemble"], placed["adherence"]) == (["b1"], "strict")
    assert elsewhere["error"] == replaced["error"] == "not_enough_nodes"
    assert asked("new_ensemble", {}, {})["error"] == "invalid_config"
    assert asked("repair_to_adhere", {"ensemble": ["b1"]}, here)["ensemble"] == ["b1"]
    assert asked("check_adherence", {"ensemble": ["b1", "b2"]}, here)["adherence"] == "fail"
    assert asked("check_acked", {"acked": ["b1"]}, here)["value"] is True


def test_unenforced_racks_are_spread_as_evenly_as_possible() -> None:
    up = "a=/x/r1 b=/x/r1 c=/x/r1 d=/x/r1 e=/x/r2"
    sizes: dict[str, Json] = {"ensemble_size": 4, "write_quorum": 2, "ack_quorum": 2}
    for seed in range(10):
        found = answer("rack_aware", up, "new_ensemble", sizes, seed=seed)

        assert "'e'" in str(found["ensemble"])
        assert found["adherence"] == "fail"


def test_weights_count_for_racks_and_for_replacements_too() -> None:
    free: dict[str, Json] = dict.fromkeys(("a0", "a1", "a2", "b0", "b1", "b2", "c0"), 100)
    free |= {"c1": 300, "c2": 300}
    params: dict[str, Json] = {"weight_by_free_space": True, "free_space": free}
    sizes: dict[str, Json] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
    for policy in ("default", "rack_aware"):
        found = answer(
            policy, NINE, "new_ensemble_statistics", {**sizes, "calls": 2_000}, params=params
        )
        counts = found["counts"]

        assert isinstance(counts, dict)
        assert 2.0 < float(str(counts["c1"])) / float(str(counts["a0"])) < 3.2


@pytest.mark.parametrize(
    ("counts", "sizes", "params"),
    [
        ((24, 8, 5, 2), (23, 7, 6), {"min_regions_for_durability": 3}),
        (
            (11, 10, 8, 1, 1, 1, 20),
            (15, 10, 7),
            {"min_regions_for_durability": 5, "durability": "regions"},
        ),
    ],
    ids=["nothing was found", "a soft one was found"],
)
@pytest.mark.parametrize("operation", ["new_ensemble", "new_ensemble_statistics"])
def test_a_search_that_reaches_its_bound_is_undecided(
    counts: tuple[int, ...], sizes: tuple[int, ...], params: dict[str, Json], operation: str
) -> None:
    up = " ".join(
        f"{region}{number}=/{region}/r{number}"
        for region, count in zip("abcdefg", counts, strict=False)
        for number in range(count)
    )
    names = ("ensemble_size", "write_quorum", "ack_quorum")
    args: dict[str, Json] = dict(zip(names, sizes, strict=True))
    if operation == "new_ensemble_statistics":
        args["calls"] = 1

    found = answer("region_aware", up, operation, args, params=params)

    assert found["error"] == "undecided"
    assert "though there may be one" in str(found["message"])
