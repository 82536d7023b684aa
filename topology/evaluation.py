"""Answer what-ifs about placement: one scenario in, one answer out; pure except for chance."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from topology.errors import (
    GeologError,
    InvalidArgumentError,
    InvalidConfigError,
    NotEnoughNodesError,
)
from topology.json_values import Json
from topology.membership import Membership, NodeUse
from topology.nearest import suggestion
from topology.policy import Placement, PlacementPolicy, PlacementRequest, check_sizes
from topology.quorum import AckRule, QuorumConfig
from topology.read_order import (
    NodeHealth,
    ReadOrder,
    bookkeeper_order,
    seed_order,
    sticky_index,
    with_rest,
)
from topology.ring.search import PlacementUndecidedError, undecided_told
from topology.ring.window_rule import Adherence
from topology.scenario import Arguments, PolicyName, Scenario, read_scenario

CALLS_MAX = 10_000_000
"""Maximum number of ensembles in one `new_ensemble_statistics`."""

ScenarioAnswer = dict[str, Json]
_T = TypeVar("_T")


def evaluate(document: Json, index: int, rng: random.Random) -> ScenarioAnswer:
    """Answer one scenario, the `index`-th. An error is also an answer: `error` and `message`.

    The scenario's own seed, if present, replaces `rng`.
    """
    named: ScenarioAnswer = {}
    if isinstance(document, dict) and "id" in document:
        named["id"] = document["id"]
    try:
        scenario = read_scenario(document, index)
        operation = _OPERATIONS.get(scenario.operation)
        if operation is None:
            raise InvalidArgumentError(
                f"unknown operation {scenario.operation!r}; known operations:"
                f" {', '.join(_OPERATIONS)}"
            )
        chance = rng if scenario.seed is None else random.Random(scenario.seed)
        members = _after_changes(scenario)
        return {**named, **operation(attrs.evolve(scenario, members=members), chance)}
    except GeologError as error:
        return {**named, "error": _kind_of(error), "message": str(error)}


def _kind_of(error: GeologError) -> str:
    match error:
        case PlacementUndecidedError():
            return "undecided"
        case NotEnoughNodesError():
            return "not_enough_nodes"
        case InvalidConfigError():
            return "invalid_config"
        case InvalidArgumentError():
            return "invalid_argument"
        case _:
            raise error


def _after_changes(scenario: Scenario) -> Membership:
    """The members after some nodes moved, and some left and came back."""
    members, args = scenario.members, scenario.args
    _check_known(members, args.relocate, "args.relocate")
    for node, place in args.relocate.items():
        depth = members.location_of(node).depth
        if place.depth != depth:
            raise InvalidArgumentError(
                f"args.relocate: location {place} of {node!r} has {place.depth} parts; others"
                f" have {depth}"
            )
    members = members.relocated(args.relocate)
    leaving = args.leave_and_rejoin
    _check_known(members, leaving, "args.leave_and_rejoin")
    writable = _in_state(members, NodeUse.WRITABLE) | _in_state(members, NodeUse.DRAINING)
    readonly = _in_state(members, NodeUse.READONLY)
    for node in leaving:
        if members.state_of(node) not in (NodeUse.DOWN, NodeUse.NEVER_REGISTERED):
            members, _ = members.changed(
                writable=writable - {node}, readonly=readonly - {node}, locations={}, now_s=0.0
            )
            members, _ = members.changed(
                writable=writable, readonly=readonly, locations={}, now_s=0.0
            )
    return members


def _in_state(members: Membership, state: NodeUse) -> frozenset[str]:
    return frozenset(one.node for one in members.members.values() if one.state is state)


def _check_known(members: Membership, nodes: Iterable[str], where: str) -> None:
    for node in nodes:
        if node not in members.members:
            known = sorted(members.members)
            hint = suggestion(node, known) if known else "; there are no nodes"
            raise InvalidArgumentError(f"{where}: unknown node {node!r}{hint}")


# ---------------------------------------------------------------- placement of entries


def _asked(scenario: Scenario) -> PlacementPolicy:
    if scenario.policy is None:
        raise InvalidArgumentError(
            f"operation {scenario.operation!r} needs a policy other than 'quorum'"
        )
    return scenario.policy


def _given(value: _T | None, name: str) -> _T:
    if value is None:
        raise InvalidArgumentError(f"args.{name} is missing")
    return value


def _request(args: Arguments) -> PlacementRequest:
    return PlacementRequest(
        ensemble_size=_given(args.ensemble_size, "ensemble_size"),
        write_quorum=_given(args.write_quorum, "write_quorum"),
        ack_quorum=_given(args.ack_quorum, "ack_quorum"),
        exclude=frozenset(args.exclude),
        custom_metadata=args.custom_metadata,
    )


def _new_ensemble(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    policy = _asked(scenario)
    size = _given(scenario.args.ensemble_size, "ensemble_size")
    if scenario.name is PolicyName.DEFAULT and size <= 0:
        return {"ensemble": list[Json](), "adherence": Adherence.FAIL.value}
    request = _request(scenario.args)
    placed = _decided(policy.new_ensemble(scenario.members, request, rng), request)
    return {"ensemble": list[Json](placed.nodes), "adherence": placed.adherence.value}


def _decided(placed: Placement, request: PlacementRequest) -> Placement:
    """PlacementUndecidedError if a better one may exist: answers are exact."""
    if placed.is_undecided:
        raise PlacementUndecidedError(
            f"found an ensemble that is {placed.adherence.value}, and"
            f" {undecided_told(request.ensemble_size, request.write_quorum, 'better')}"
        )
    return placed


def _new_ensemble_statistics(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    policy, request = _asked(scenario), _request(scenario.args)
    calls = _given(scenario.args.calls, "calls")
    if not 0 < calls <= CALLS_MAX:
        raise InvalidArgumentError(f"args.calls must be 1 to {CALLS_MAX}, got {calls}")
    counts = Counter(dict.fromkeys(scenario.members.members, 0))
    for _ in range(calls):
        placed = policy.new_ensemble(scenario.members, request, rng)
        counts.update(_decided(placed, request).nodes)
    return {"counts": dict[str, Json](counts)}


def _replace_node(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    args, node = scenario.args, _given(scenario.args.replace, "replace")
    _check_known(scenario.members, [node], "args.replace")
    found = _asked(scenario).replace_node(
        scenario.members, _request(args), _known_ensemble(scenario), node, rng
    )
    return {"node": found.node, "adherence": found.adherence.value}


def _repair_to_adhere(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    found = _asked(scenario).repair(
        scenario.members, _request(scenario.args), _known_ensemble(scenario), rng
    )
    return {"ensemble": list[Json](found.nodes), "adherence": found.adherence.value}


def _known_ensemble(scenario: Scenario) -> Sequence[str]:
    """An ensemble to change: the locations of its members decide who replaces whom."""
    ensemble = scenario.args.ensemble
    _check_known(scenario.members, ensemble, "args.ensemble")
    return ensemble


def _check_adherence(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    args, ensemble = scenario.args, scenario.args.ensemble
    write = _given(args.write_quorum, "write_quorum")
    ack = _given(args.ack_quorum, "ack_quorum")
    if ensemble:
        check_sizes(len(ensemble), write, ack)
    found = _asked(scenario).adherence(scenario.members, ensemble, write, ack)
    return {"adherence": found.value}


def _check_acked(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    args = scenario.args
    found = _asked(scenario).is_acked_adhering(
        scenario.members,
        args.acked,
        _given(args.write_quorum, "write_quorum"),
        _given(args.ack_quorum, "ack_quorum"),
    )
    return {"value": found}


# ---------------------------------------------------------------- read order


def _read_order(scenario: Scenario, rng: random.Random) -> list[int]:
    args = scenario.args
    ensemble, write_set = args.ensemble, args.write_set
    _check_write_set(write_set, len(ensemble))
    health = NodeHealth(
        slow=frozenset(args.slow),
        pending=args.pending,
        failed_at_entry=args.failed_at_entry,
        pending_threshold=scenario.pending_threshold,
    )
    members, local = scenario.members, scenario.local
    if scenario.order is ReadOrder.SEED:
        return seed_order(members, ensemble, write_set, health, local, rng)
    match scenario.name:
        case PolicyName.RACK_AWARE:
            return bookkeeper_order(members, ensemble, write_set, health, None)
        case PolicyName.REGION_AWARE:
            is_known = local is not None and local != members.config.default_location
            region = local.region if local is not None and is_known else None
            return bookkeeper_order(members, ensemble, write_set, health, region)
        case _:
            return list(write_set)


def _check_write_set(write_set: Sequence[int], ensemble_size: int) -> None:
    for index in write_set:
        if not 0 <= index < ensemble_size:
            raise InvalidArgumentError(
                f"args.write_set has {index}; the ensemble has indices 0 to {ensemble_size - 1}"
            )
    if len(set(write_set)) != len(write_set):
        raise InvalidArgumentError(f"args.write_set has a duplicate index: {list(write_set)}")


def _reorder_read(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    _asked(scenario)
    return {"write_set": list[Json](_read_order(scenario, rng))}


def _reorder_read_lac(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    _asked(scenario)
    ensemble = scenario.args.ensemble
    return {"write_set": list[Json](with_rest(_read_order(scenario, rng), len(ensemble)))}


def _sticky_read(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:
    args, ensemble = scenario.args, scenario.args.ensemble
    current = args.current
    if not ensemble:
        raise InvalidArgumentError("args.ensemble is empty: no node to stick to")
    if current is not None and not 0 <= current < len(ensemble):
        raise InvalidArgumentError(
            f"args.current is {current}; the ensemble has indices 0 to {len(ensemble) - 1}"
        )
    return {"index": sticky_index(scenario.members, ensemble, current, scenario.local, rng)}


# ---------------------------------------------------------------- the cluster


def _topology_view(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    regions: dict[str, Json] = {
        name: list[Json](sorted(node.node for node in region.nodes()))
        for name, region in sorted(scenario.members.up.regions.items())
    }
    return {"regions": regions}


def _cluster_changed(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    args = scenario.args
    _, dead = scenario.members.changed(
        writable=args.writable,
        readonly=args.readonly,
        locations={},
        now_s=0.0,
    )
    return {"dead": list[Json](sorted(dead))}


# ---------------------------------------------------------------- quorums


def _quorum(args: Arguments) -> AckRule:
    ensemble = _given(args.ensemble_size, "ensemble_size")
    config = QuorumConfig(
        ensemble_size=ensemble,
        write_quorum=_given(args.write_quorum, "write_quorum"),
        ack_quorum=_given(args.ack_quorum, "ack_quorum"),
    )
    return AckRule(config, ["-"] * ensemble)


def _quorum_coverage(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    """Whether the definite answers block every write set."""
    rule = _quorum(scenario.args)
    mask = 0
    for index, answer in scenario.args.responses.items():
        if not index.isdecimal() or int(index) >= rule.config.ensemble_size:
            raise InvalidArgumentError(
                f"args.responses has index {index!r}; the ensemble has indices 0 to"
                f" {rule.config.ensemble_size - 1}"
            )
        if answer not in ("ok", "no_such_entry", "error"):
            raise InvalidArgumentError(
                f"args.responses.{index} is {answer!r}; it must be one of ok, no_such_entry,"
                " error"
            )
        if answer != "error":
            mask |= 1 << int(index)
    return {"value": rule.blocks_all(mask)}


def _write_set(scenario: Scenario, rng: random.Random) -> ScenarioAnswer:  # noqa: ARG001
    args = scenario.args
    rule, entry = _quorum(args), _given(args.entry_id, "entry_id")
    if entry < 0:
        raise InvalidArgumentError(f"args.entry_id must be >= 0, got {entry}")
    slots = rule.write_set(entry)
    if args.replica_index is not None:
        return {"value": args.replica_index in slots}
    return {"write_set": list[Json](slots)}


_OPERATIONS: dict[str, Callable[[Scenario, random.Random], ScenarioAnswer]] = {
    "new_ensemble": _new_ensemble,
    "new_ensemble_statistics": _new_ensemble_statistics,
    "replace_node": _replace_node,
    "repair_to_adhere": _repair_to_adhere,
    "check_adherence": _check_adherence,
    "check_acked": _check_acked,
    "reorder_read": _reorder_read,
    "reorder_read_lac": _reorder_read_lac,
    "sticky_read": _sticky_read,
    "topology_view": _topology_view,
    "cluster_changed": _cluster_changed,
    "quorum_coverage": _quorum_coverage,
    "write_set": _write_set,
}
