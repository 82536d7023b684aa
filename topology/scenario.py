"""A what-if about placement, read from JSON: the nodes, the policy, and what is asked."""

import enum
from collections.abc import Mapping
from typing import TypeVar

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.fields import Fields, Json
from topology.location import Location
from topology.membership import Member, Membership, MembershipConfig, NodeState
from topology.policies.default import AnyNode
from topology.policies.local_node import LocalNode
from topology.policies.rack_aware import RackAware
from topology.policies.region_aware import RegionAware
from topology.policies.zone_aware import ZoneAware
from topology.policy import PlacementPolicy
from topology.quorum import Durability
from topology.read_order import ReadOrder
from topology.tree import Weighting

_Named = TypeVar("_Named", bound=enum.Enum)

_UNRESOLVED = Location("default-region", "default-rack")
"""Where resolvers say that a node stands whose place they do not know."""

_UNKNOWN_REGION = Location("UnknownRegion", "default-rack")
"""Where that is to `region_aware`, as in BookKeeper, unless a default is given."""


class PolicyName(enum.Enum):
    """The policies that can be asked, and plain arithmetic of quorums."""

    DEFAULT = "default"
    LOCAL_NODE = "local_node"
    RACK_AWARE = "rack_aware"
    REGION_AWARE = "region_aware"
    ZONE_AWARE = "zone_aware"
    QUORUM = "quorum"


_SCENARIO = {"id", "policy", "nodes", "params", "operation", "args", "seed", "expect", "trials"}
_PARAMS = {
    "local_location",
    "default_location",
    "regions_to_write",
    "min_regions_for_durability",
    "durability",
    "enforce_durability_in_replace",
    "durability_disabled",
    "disallowed_regions",
    "validation",
    "min_racks_per_write_quorum",
    "enforce_min_racks",
    "stabilize_seconds",
    "reorder_pending_threshold",
    "desired_zones",
    "min_zones",
    "strict_zones",
    "weight_by_free_space",
    "free_space",
    "max_weight_multiple",
    "order",
}


@attrs.frozen
class Scenario:
    """One question, whole and checked. `policy` is None for plain quorum arithmetic."""

    name: PolicyName
    policy: PlacementPolicy | None
    members: Membership
    local: Location | None
    order: ReadOrder
    pending_threshold: int
    operation: str
    args: Fields
    seed: int | None


def read_scenario(document: Json, index: int) -> Scenario:
    """Check one scenario, the `index`-th; InvalidArgumentError or InvalidConfigError."""
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"scenario {index} is {document!r}; it must be an object")
    fields = Fields(f"scenario {document.get('id', index)}", document)
    fields.check_names(_SCENARIO)
    name = _named(fields, "policy", PolicyName)
    params = fields.object("params", InvalidConfigError)
    params.check_names(_PARAMS)
    default = _location(params, "default_location") or _default_of(name)
    local = _location(params, "local_location")
    if local is not None:
        local = _placed(local, default)
    members = _members(fields, params, default)
    _check_local_depth(members, local)
    return Scenario(
        name,
        _policy(name, params, members.config.default_location, local),
        members,
        local,
        _named(params, "order", ReadOrder, ReadOrder.BOOKKEEPER),
        params.count_or("reorder_pending_threshold", 0),
        fields.text("operation"),
        fields.object("args", InvalidArgumentError),
        fields.count("seed") if fields.has("seed") else None,
    )


def _named(
    fields: Fields, name: str, kind: type[_Named], default: _Named | None = None
) -> _Named:
    if default is not None and not fields.has(name):
        return default
    text = fields.text(name)
    known = [one.value for one in kind]
    if text not in known:
        raise fields.error(
            f"{fields.where}.{name} is {text!r}; known are {', '.join(map(str, known))}"
        )
    return kind(text)


def _location(fields: Fields, name: str) -> Location | None:
    if not fields.has(name):
        return None
    try:
        return Location.parse(fields.text(name))
    except InvalidArgumentError as error:
        raise fields.error(f"{fields.where}.{name}: {error}") from None


def _default_of(name: PolicyName) -> Location:
    """Where nodes stand whose place is not known, as the policy calls it."""
    match name:
        case PolicyName.REGION_AWARE:
            return _UNKNOWN_REGION
        case PolicyName.ZONE_AWARE:
            return Location("default-zone", "default-upgradedomain")
        case _:
            return _UNRESOLVED


def _placed(location: Location | None, default: Location) -> Location:
    """The location, or the default if it is not known."""
    if location is None or (default == _UNKNOWN_REGION and location == _UNRESOLVED):
        return default
    return location


def _members(fields: Fields, params: Fields, default: Location) -> Membership:
    stabilize_s = params.number_or("stabilize_seconds", 0.0)
    free_bytes = params.count_map("free_space")
    _check_not_negative(params, {"stabilize_seconds": stabilize_s})
    _check_not_negative(params, {f"free_space.{node}": one for node, one in free_bytes.items()})
    members = [_member(node, default, free_bytes) for node in fields.objects("nodes")]
    seen: set[str] = set()
    for member in members:
        if member.node in seen:
            raise InvalidArgumentError(f"{fields.where}.nodes has node {member.node!r} twice")
        seen.add(member.node)
        _check_depth(fields, member, members[0].location)
    strangers = sorted(free_bytes.keys() - seen)
    if strangers:
        raise InvalidConfigError(
            f"{params.where}.free_space names {strangers[0]!r}, which is not among the nodes"
        )
    config = MembershipConfig(default_location=default, stabilize_s=stabilize_s)
    return Membership.of(config, members)


def _check_not_negative(fields: Fields, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if value < 0:
            raise InvalidConfigError(f"{fields.where}.{name} is {value}; the smallest is 0")


def _member(fields: Fields, default: Location, free_bytes: dict[str, int]) -> Member:
    fields.check_names({"id", "location", "state"})
    node = fields.text("id")
    state = _named(fields, "state", NodeState, NodeState.WRITABLE)
    return Member(
        node=node,
        location=_placed(_location(fields, "location"), default),
        state=state,
        free_bytes=free_bytes.get(node, 0),
        left_s=(0.0,) if state is NodeState.DOWN else (),
    )


def _check_depth(fields: Fields, member: Member, other: Location) -> None:
    if member.location.depth != other.depth:
        raise InvalidArgumentError(
            f"{fields.where}: node {member.node!r} stands at {member.location}, which has"
            f" {member.location.depth} parts, others have {other.depth}, as {other}: give all"
            " nodes locations of one depth"
        )


def _check_local_depth(members: Membership, local: Location | None) -> None:
    first = next(iter(members.members.values()), None)
    if first is not None and local is not None and local.depth != first.location.depth:
        raise InvalidConfigError(
            f"local_location {local} has {local.depth} parts, the nodes' locations have"
            f" {first.location.depth}, as {first.location}"
        )


def _policy(
    name: PolicyName, params: Fields, default: Location, local: Location | None
) -> PlacementPolicy | None:
    weighting = _weighting(params)
    regions = frozenset(params.texts("regions_to_write"))
    params.flag_or("validation", default=True)  # Ensembles are right as they are made.
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
                min_racks=_at_least(params, "min_racks_per_write_quorum", 2, 1),
                is_enforced=params.flag_or("enforce_min_racks", default=False),
            )
        case PolicyName.REGION_AWARE:
            return RegionAware(
                default_location=default,
                local_location=local,
                weighting=weighting,
                regions_to_write=regions,
                min_regions=_at_least(
                    params, "min_regions_for_durability", 2 if regions else 0, 0
                ),
                durability=_named(params, "durability", Durability, Durability.COUNT),
                is_enforced_in_replace=params.flag_or(
                    "enforce_durability_in_replace", default=True
                ),
                is_durability_disabled=params.flag_or("durability_disabled", default=False),
                disallowed_regions=frozenset(params.texts("disallowed_regions")),
                min_racks=_at_least(params, "min_racks_per_write_quorum", 2, 1),
                is_racks_enforced=params.flag_or("enforce_min_racks", default=False),
            )
        case PolicyName.ZONE_AWARE:
            return ZoneAware(
                default_location=default,
                local_location=local,
                weighting=weighting,
                desired_zones=_at_least(params, "desired_zones", 3, 1),
                min_zones=_at_least(params, "min_zones", 2, 1),
                is_strict=params.flag_or("strict_zones", default=True),
                min_regions=_zones_acknowledged(params),
            )


def _zones_acknowledged(params: Fields) -> int | None:
    """In how many zones acknowledgements are with durability `regions`; None with `count`."""
    if _named(params, "durability", Durability, Durability.COUNT) is Durability.COUNT:
        return None
    return max(1, params.count_or("min_regions_for_durability", 1))


def _at_least(params: Fields, name: str, default: int, least: int) -> int:
    value = params.count_or(name, default)
    if value < least:
        raise InvalidConfigError(f"{params.where}.{name} is {value}; the smallest is {least}")
    return value


def _weighting(params: Fields) -> Weighting | None:
    multiple_max = params.number_or("max_weight_multiple", 3.0)
    if multiple_max <= 0:
        raise InvalidConfigError(
            f"{params.where}.max_weight_multiple is {multiple_max}; it must be above 0"
        )
    is_weighted = params.flag_or("weight_by_free_space", default=False)
    return Weighting(multiple_max) if is_weighted else None
