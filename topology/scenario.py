"""A what-if about placement, read from JSON: the nodes, the policy, and the question."""

import enum
from collections.abc import Mapping, Sequence

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.json_values import Json, above_zero, at_least, structured
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.policies.default import AnyNode
from topology.policies.local_node import LocalNode
from topology.policies.rack_aware import RackAware
from topology.policies.region_aware import RegionAware
from topology.policies.zone_aware import ZoneAware
from topology.policy import PlacementPolicy
from topology.quorum import Durability
from topology.read_order import ReadOrder
from topology.tree import Weighting

_UNRESOLVED = Location("default-region", "default-rack")
"""Location that resolvers give a node of unknown location."""

_UNKNOWN_REGION = Location("UnknownRegion", "default-rack")
"""The same for `region_aware`, as in BookKeeper, unless a default is given."""


class PolicyName(enum.Enum):
    """Available policies, and plain quorum arithmetic."""

    DEFAULT = "default"
    LOCAL_NODE = "local_node"
    RACK_AWARE = "rack_aware"
    REGION_AWARE = "region_aware"
    ZONE_AWARE = "zone_aware"
    QUORUM = "quorum"


@attrs.frozen(kw_only=True)
class _Node:
    id: str
    location: Location | None = None
    state: NodeUse = NodeUse.WRITABLE


@attrs.frozen(kw_only=True)
class _Params:
    local_location: Location | None = None
    default_location: Location | None = None
    regions_to_write: Sequence[str] = ()
    min_regions_for_durability: int | None = attrs.field(default=None, validator=at_least(0))
    durability: Durability = Durability.COUNT
    enforce_durability_in_replace: bool = True
    durability_disabled: bool = False
    disallowed_regions: Sequence[str] = ()
    validation: bool = True
    """No effect: ensembles are built adherent."""
    min_racks_per_write_quorum: int = attrs.field(default=2, validator=at_least(1))
    enforce_min_racks: bool = False
    stabilize_seconds: float = attrs.field(default=0.0, validator=at_least(0))
    reorder_pending_threshold: int = 0
    desired_zones: int = attrs.field(default=3, validator=at_least(1))
    min_zones: int = attrs.field(default=2, validator=at_least(1))
    strict_zones: bool = True
    weight_by_free_space: bool = False
    free_space: Mapping[str, int] = attrs.field(factory=dict, validator=at_least(0))
    max_weight_multiple: float = attrs.field(default=3.0, validator=above_zero)
    order: ReadOrder = ReadOrder.BOOKKEEPER


@attrs.frozen(kw_only=True)
class Arguments:
    """The members of `args`. Each operation takes some of them, and requires some of those."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    exclude: Sequence[str] = ()
    calls: int | None = None
    ensemble: Sequence[str] = ()
    replace: str | None = None
    acked: Sequence[str] = ()
    write_set: Sequence[int] = ()
    slow: Sequence[str] = ()
    pending: Mapping[str, int] = attrs.field(factory=dict)
    failed_at_entry: Mapping[str, int] = attrs.field(factory=dict)
    current: int | None = None
    writable: Sequence[str] = ()
    readonly: Sequence[str] = ()
    responses: Mapping[str, str] = attrs.field(factory=dict)
    entry_id: int | None = None
    replica_index: int | None = None
    relocate: Mapping[str, Location] = attrs.field(factory=dict)
    leave_and_rejoin: Sequence[str] = ()
    custom_metadata: Mapping[str, Json] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Document:
    policy: PolicyName
    operation: str
    id: Json = None
    nodes: list[_Node] = attrs.field(factory=list)
    params: dict[str, Json] = attrs.field(factory=dict)
    args: dict[str, Json] = attrs.field(factory=dict)
    seed: int | None = None
    expect: Json = None
    trials: Json = None


@attrs.frozen
class Scenario:
    """One question, complete and checked. `policy` is None for plain quorum arithmetic."""

    name: PolicyName
    policy: PlacementPolicy | None
    members: Membership
    local: Location | None
    order: ReadOrder
    pending_threshold: int
    operation: str
    args: Arguments
    seed: int | None


def read_scenario(document: Json, index: int) -> Scenario:
    """Check one scenario, the `index`-th; InvalidArgumentError or InvalidConfigError."""
    id_ = document.get("id", index) if isinstance(document, dict) else index
    where = f"scenario {id_}"
    asked = structured(document, _Document, where)
    params = structured(asked.params, _Params, f"{where}.params", InvalidConfigError)
    default = params.default_location or _default_of(asked.policy)
    local = params.local_location and _placed(params.local_location, default)
    members = _members(where, asked.nodes, params, default)
    _check_local_depth(members, local)
    return Scenario(
        asked.policy,
        _policy(asked.policy, params, default, local),
        members,
        local,
        params.order,
        params.reorder_pending_threshold,
        asked.operation,
        structured(asked.args, Arguments, f"{where}.args"),
        asked.seed,
    )


def _default_of(name: PolicyName) -> Location:
    """The policy's location for nodes of unknown location."""
    match name:
        case PolicyName.REGION_AWARE:
            return _UNKNOWN_REGION
        case PolicyName.ZONE_AWARE:
            return Location("default-zone", "default-upgradedomain")
        case _:
            return _UNRESOLVED


def _placed(location: Location | None, default: Location) -> Location:
    """The location, or the default if unknown."""
    if location is None or (default == _UNKNOWN_REGION and location == _UNRESOLVED):
        return default
    return location


def _members(
    where: str, nodes: Sequence[_Node], params: _Params, default: Location
) -> Membership:
    members: dict[str, KnownNode] = {}
    for node in nodes:
        if node.id in members:
            raise InvalidArgumentError(f"{where}.nodes: duplicate node {node.id!r}")
        members[node.id] = KnownNode(
            node=node.id,
            location=_placed(node.location, default),
            state=node.state,
            free_bytes=params.free_space.get(node.id, 0),
            left_s=(0.0,) if node.state is NodeUse.DOWN else (),
        )
        _check_depth(where, members[node.id], members[nodes[0].id].location)
    strangers = sorted(params.free_space.keys() - members.keys())
    if strangers:
        raise InvalidConfigError(f"{where}.params.free_space: unknown node {strangers[0]!r}")
    config = MembershipConfig(default_location=default, stabilize_s=params.stabilize_seconds)
    return Membership.of(config, members.values())


def _check_depth(where: str, member: KnownNode, other: Location) -> None:
    if member.location.depth != other.depth:
        raise InvalidArgumentError(
            f"{where}: location {member.location} of node {member.node!r} has"
            f" {member.location.depth} parts, others have {other.depth}, e.g. {other}: give all"
            " nodes locations of the same depth"
        )


def _check_local_depth(members: Membership, local: Location | None) -> None:
    first = next(iter(members.members.values()), None)
    if first is not None and local is not None and local.depth != first.location.depth:
        raise InvalidConfigError(
            f"local_location {local} has {local.depth} parts, the nodes' locations have"
            f" {first.location.depth}, e.g. {first.location}"
        )


def _policy(
    name: PolicyName, params: _Params, default: Location, local: Location | None
) -> PlacementPolicy | None:
    weighting = Weighting(params.max_weight_multiple) if params.weight_by_free_space else None
    min_regions = params.min_regions_for_durability
    match name:
        case PolicyName.QUORUM:
            return None
        case PolicyName.LOCAL_NODE:
            return LocalNode(local_location=local)
        case PolicyName.DEFAULT:
            return AnyNode(default_location=default, local_location=local, weighting=weighting)
        case PolicyName.RACK_AWARE:
            return RackAware(
                default_location=default,
                local_location=local,
                weighting=weighting,
                min_racks=params.min_racks_per_write_quorum,
                is_enforced=params.enforce_min_racks,
            )
        case PolicyName.REGION_AWARE:
            if min_regions is None:
                min_regions = 2 if params.regions_to_write else 0
            return RegionAware(
                default_location=default,
                local_location=local,
                weighting=weighting,
                regions_to_write=frozenset(params.regions_to_write),
                min_regions=min_regions,
                durability=params.durability,
                is_enforced_in_replace=params.enforce_durability_in_replace,
                is_durability_disabled=params.durability_disabled,
                disallowed_regions=frozenset(params.disallowed_regions),
                min_racks=params.min_racks_per_write_quorum,
                is_racks_enforced=params.enforce_min_racks,
            )
        case PolicyName.ZONE_AWARE:
            # Acknowledgements must span zones with durability `regions`, not with `count`.
            is_counted = params.durability is Durability.COUNT
            return ZoneAware(
                default_location=default,
                local_location=local,
                weighting=weighting,
                desired_zones=params.desired_zones,
                min_zones=params.min_zones,
                is_strict=params.strict_zones,
                min_regions=None if is_counted else max(1, min_regions or 1),
            )
