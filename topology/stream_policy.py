"""The policy that places a stream's ledgers: named once, frozen with each ledger.

The terms say what a policy must keep besides the quorums. They exclude settings that change at
run time (the client's location, forbidden regions, weights).
"""

import enum
from typing import assert_never

import attrs

from topology.errors import InvalidArgumentError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.own_policy import NONE_KNOWN, OwnPolicies, UnknownPolicyError, check_name
from topology.policies.default import AnyNode
from topology.policies.in_region import InRegion
from topology.policies.local_node import LocalNode
from topology.policies.of_package import OfPackage, UnknownPolicy
from topology.policies.rack_aware import RackAware
from topology.policies.region_aware import RegionAware
from topology.policies.zone_aware import ZoneAware
from topology.policy import PlacementPolicy
from topology.quorum import Durability, QuorumConfig
from topology.ring.window_rule import Adherence
from topology.tree import Weighting

DEFAULT_LOCATION = Location("default-region", "default-rack")
"""Location of nodes whose location is unknown."""

_ZONES_DESIRED = 3
_ZONES_MIN = 2
_RACKS_MIN = 2
"""With this many racks, and fewer than its terms say, a ledger may be written, and is SOFT."""


class PolicyKind(enum.Enum):
    """The policies that a stream can have."""

    DEFAULT = "default"
    LOCAL_NODE = "local_node"
    RACK_AWARE = "rack_aware"
    REGION_AWARE = "region_aware"
    ZONE_AWARE = "zone_aware"
    OWN = "own"
    """A policy of another package, which the terms name."""


OURS = tuple(kind for kind in PolicyKind if kind is not PolicyKind.OWN)
"""geolog's own policies."""

_SPREADING = (PolicyKind.REGION_AWARE, PolicyKind.ZONE_AWARE)


@attrs.frozen(kw_only=True)
class PlacementTerms:
    """A stream's policy. Streams created before there was a choice are region-aware."""

    policy: PolicyKind = PolicyKind.REGION_AWARE
    min_racks: int = 2
    """How many racks a write set of a rack-aware stream spans, if there are that many."""
    region: str | None = None
    """The region of all copies: the home of a `regional` stream. None: any region."""
    own: str = ""
    """The name of the policy if it is of another package."""

    def __str__(self) -> str:
        racks = f" ({self.min_racks} racks)" if self.policy is PolicyKind.RACK_AWARE else ""
        return self.name + racks + (f" in {self.region}" if self.region else "")

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.own or self.policy.value

    def check(self, quorum: QuorumConfig) -> None:
        """InvalidArgumentError, with the nearest, unless the policy can keep these quorums."""
        name = self.name
        if self.region is not None and quorum.min_regions > 1:
            raise InvalidArgumentError(
                f"all copies are in region {self.region}, so min_regions {quorum.min_regions}"
                " is impossible: use 1, or a stream of mode 'global'"
            )
        if self.region is not None and self.policy in _SPREADING:
            raise InvalidArgumentError(
                f"policy {name!r} spreads copies over regions, but all copies are in region"
                f" {self.region}: use 'rack_aware'"
            )
        match self.policy:
            case PolicyKind.LOCAL_NODE if quorum.ensemble_size > 1:
                raise InvalidArgumentError(
                    f"policy {name!r} has one copy, on one node; ensemble_size"
                    f" {quorum.ensemble_size} is impossible: use 1, or policy 'rack_aware'"
                )
            case PolicyKind.DEFAULT | PolicyKind.RACK_AWARE if quorum.min_regions > 1:
                raise InvalidArgumentError(
                    f"policy {name!r} ignores regions, so it cannot keep min_regions"
                    f" {quorum.min_regions}: use min_regions 1, or policy 'region_aware'"
                )
            case PolicyKind.ZONE_AWARE if self._is_counted(quorum):
                raise InvalidArgumentError(
                    f"policy {name!r} cannot keep durability 'count' over"
                    f" {quorum.min_regions} regions: use durability 'regions', or policy"
                    " 'region_aware'"
                )

    def _is_counted(self, quorum: QuorumConfig) -> bool:
        return quorum.durability is Durability.COUNT and quorum.min_regions > 1


REGION_AWARE_TERMS = PlacementTerms()
"""The terms of everything created before there was a choice."""


def terms_named(name: str) -> PlacementTerms:
    """The terms of our policy of this name, else of another package's. InvalidArgumentError."""
    if name in (kind.value for kind in OURS):
        return PlacementTerms(policy=PolicyKind(name))
    return PlacementTerms(policy=PolicyKind.OWN, own=check_name(name))


@attrs.frozen(kw_only=True)
class PlacementPlace:
    """The client's location and run-time settings, from which nodes are chosen now."""

    local: Location | None = None
    """The client's location; its rack may be unknown."""
    weighting: Weighting | None = None
    forbidden_regions: frozenset[str] = frozenset()
    """Regions in which nothing new is placed; existing entries stay, and are read."""
    own: OwnPolicies = NONE_KNOWN
    """The policies of other packages that this process knows."""

    def excluded(self, members: Membership) -> frozenset[str]:
        """Nodes excluded from new placement because of their region."""
        return frozenset(
            node
            for node, member in members.members.items()
            if member.location.region in self.forbidden_regions
        )


ANYWHERE = PlacementPlace()


def policy_of(
    terms: PlacementTerms,
    quorum: QuorumConfig,
    place: PlacementPlace = PlacementPlace(),
) -> PlacementPolicy:
    """The policy that places ledgers of these terms and quorums, from this location."""
    policy = _anywhere(terms, quorum, place)
    return policy if terms.region is None else InRegion(policy, terms.region)


def _anywhere(
    terms: PlacementTerms, quorum: QuorumConfig, place: PlacementPlace
) -> PlacementPolicy:
    """The policy, in whichever region."""
    local, weighting = place.local, place.weighting
    match terms.policy:
        case PolicyKind.LOCAL_NODE:
            return LocalNode(local_location=local)
        case PolicyKind.DEFAULT:
            return AnyNode(
                default_location=DEFAULT_LOCATION, local_location=local, weighting=weighting
            )
        case PolicyKind.RACK_AWARE:
            return RackAware(
                default_location=DEFAULT_LOCATION,
                local_location=local,
                weighting=weighting,
                min_racks=terms.min_racks,
                soft_racks=_RACKS_MIN,
            )
        case PolicyKind.REGION_AWARE:
            return RegionAware(
                default_location=DEFAULT_LOCATION,
                local_location=local,
                weighting=weighting,
                min_regions=quorum.min_regions,
                durability=quorum.durability,
                wants_survival=True,
                disallowed_regions=place.forbidden_regions,
            )
        case PolicyKind.ZONE_AWARE:
            zones_min = max(_ZONES_MIN, quorum.min_regions)
            return ZoneAware(
                default_location=DEFAULT_LOCATION,
                local_location=local,
                weighting=weighting,
                min_zones=zones_min,
                desired_zones=max(_ZONES_DESIRED, zones_min),
                min_regions=(
                    quorum.min_regions if quorum.durability is Durability.REGIONS else None
                ),
            )
        case PolicyKind.OWN:
            try:
                own = place.own.find(terms.own)
            except UnknownPolicyError as error:
                return UnknownPolicy(terms.own, str(error), quorum)
            return OfPackage(terms.own, own, quorum, local)
        case _:
            assert_never(terms.policy)


def adherence_at(
    terms: PlacementTerms,
    quorum: QuorumConfig,
    ensemble: list[tuple[str, Location]],
    own: OwnPolicies = NONE_KNOWN,
) -> Adherence:
    """How well an ensemble of nodes at these locations adheres, whatever their state now."""
    members = Membership.of(
        MembershipConfig(default_location=DEFAULT_LOCATION),
        [
            KnownNode(node=node, location=location, state=NodeUse.WRITABLE)
            for node, location in ensemble
        ],
    )
    return policy_of(terms, quorum, PlacementPlace(own=own)).adherence(
        members, [node for node, _ in ensemble], quorum.write_quorum, quorum.ack_quorum
    )
