"""Whether a stream could get new ledgers, and how safe ones, with some regions forbidden."""

import enum
import random
from collections.abc import Sequence

from geolog.metadata.nodes import NodeRecord
from topology.errors import GeologError
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.own_policy import NONE_KNOWN, OwnPolicies
from topology.policy import PlacementRequest
from topology.quorum import QuorumConfig
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence
from topology.stream_policy import (
    DEFAULT_LOCATION,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)
from topology.switches import PlacementSwitches


class NewLedgers(enum.Enum):
    """The prospects of a stream's new ledgers on the nodes that are up and allowed."""

    STRICT = enum.auto()
    LESS_SAFE = enum.auto()
    UNDECIDED = enum.auto()
    WITHOUT_PLACE = enum.auto()


def judge_new_ledgers(
    terms: PlacementTerms,
    quorum: QuorumConfig,
    live: Sequence[NodeRecord],
    switches: PlacementSwitches,
    own: OwnPolicies = NONE_KNOWN,
) -> NewLedgers:
    """Judge new ledgers on the nodes that are up, wherever their writer is."""
    members = Membership.of(
        MembershipConfig(default_location=DEFAULT_LOCATION),
        [
            KnownNode(node=one.instance, location=one.location, state=NodeUse.WRITABLE)
            for one in live
            if one.is_writable
        ],
    )
    if terms.policy is PolicyKind.LOCAL_NODE:
        is_any = bool(members.writable.regions.keys() - switches.forbidden_regions)
        return NewLedgers.STRICT if is_any else NewLedgers.WITHOUT_PLACE
    place = PlacementPlace(forbidden_regions=switches.forbidden_regions, own=own)
    request = PlacementRequest(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        exclude=place.excluded(members),
    )
    policy = policy_of(terms, quorum, place)
    try:  # Any ensemble will do.
        found = policy.new_ensemble(members, request, random.Random(0)).adherence
    except PlacementUndecidedError:
        return NewLedgers.UNDECIDED
    except GeologError:
        return NewLedgers.WITHOUT_PLACE
    is_strict = found is Adherence.STRICT
    return NewLedgers.STRICT if is_strict else NewLedgers.LESS_SAFE
