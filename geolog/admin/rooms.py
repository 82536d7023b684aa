"""Whether the streams of a cluster have room for new ledgers, now and after losing regions."""

import random
from collections.abc import Sequence

import attrs

from geolog.metadata.nodes import NodeRecord
from geolog.protocol.ledger_state import LedgerRecord
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.own_policy import NONE_KNOWN, OwnPolicies, UnknownPolicyError
from topology.policy import PlacementRequest
from topology.quorum import QuorumConfig
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence
from topology.stream_policy import (
    DEFAULT_LOCATION,
    REGION_AWARE_TERMS,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)

_RoomKey = tuple[PlacementTerms, QuorumConfig, frozenset[str]]
"""The nodes of a placement, and the regions that are lost."""

_MEMBERSHIP = MembershipConfig(default_location=DEFAULT_LOCATION)


@attrs.frozen
class StreamState:
    """The part of a stream that health looks at: its placement and its last ledger."""

    name: str
    quorum: QuorumConfig
    last_ledger: LedgerRecord | None
    placement: PlacementTerms = REGION_AWARE_TERMS
    survive: str = ""
    """The loss that it was promised to survive; empty if its quorums were given."""
    fails_over: str = ""
    """The stream that can be failed over if this log's region is lost; empty if none can."""


class Rooms:
    """Whether new ledgers can be placed after losing regions; cached for equal streams."""

    def __init__(
        self,
        live: Sequence[NodeRecord],
        forbidden_regions: frozenset[str] = frozenset(),
        own: OwnPolicies = NONE_KNOWN,
    ) -> None:
        self._live = live
        self._place = PlacementPlace(forbidden_regions=forbidden_regions, own=own)
        self._known: dict[_RoomKey, Adherence | None] = {}
        self._undecided: set[_RoomKey] = set()

    def has_room(self, stream: StreamState, lost: frozenset[str] = frozenset()) -> bool:
        """Whether a new ledger of the stream can be placed on the remaining nodes."""
        return self._best(stream, lost) is not None

    def has_better(self, stream: StreamState) -> bool:
        """Whether a new ledger would be STRICT, or could be."""
        best = self._best(stream, frozenset())
        return best is Adherence.STRICT or self.is_undecided(stream)

    def is_undecided(self, stream: StreamState) -> bool:
        """Whether the search for a better placement of a new ledger was cut off."""
        self.has_room(stream)
        return (stream.placement, stream.quorum, frozenset[str]()) in self._undecided

    def _best(self, stream: StreamState, lost: frozenset[str]) -> Adherence | None:
        key = (stream.placement, stream.quorum, lost)
        if key not in self._known:
            self._known[key] = self._place_one(stream, lost)
        return self._known[key]

    def _members_without(self, lost: frozenset[str]) -> Membership:
        return Membership.of(
            _MEMBERSHIP,
            [
                KnownNode(
                    node=record.instance, location=record.location, state=NodeUse.WRITABLE
                )
                for record in self._live
                if record.is_writable and record.location.region not in lost
            ],
        )

    def _place_one(self, stream: StreamState, lost: frozenset[str]) -> Adherence | None:
        """The adherence of a new ledger; None if no placement was found."""
        members = self._members_without(lost)
        excluded = self._place.excluded(members)
        if stream.placement.policy is PolicyKind.LOCAL_NODE:  # It is placed at its writer.
            return Adherence.STRICT if members.writable.count > len(excluded) else None
        quorum = stream.quorum
        request = PlacementRequest(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            exclude=excluded,
        )
        policy = policy_of(stream.placement, quorum, self._place)
        key = (stream.placement, quorum, lost)
        try:
            placed = policy.new_ensemble(members, request, random.Random(0))
        except UnknownPolicyError:  # By its numbers alone: those who write it know it.
            return _by_numbers(members.draining(excluded), quorum)
        except PlacementUndecidedError:
            self._undecided.add(key)
            return None  # Not proven; an operator should look.
        except (NotEnoughNodesError, InvalidArgumentError):
            return None
        if placed.is_undecided:
            self._undecided.add(key)
        return placed.adherence


def _by_numbers(members: Membership, quorum: QuorumConfig) -> Adherence | None:
    """STRICT if there are nodes and regions enough for the quorums, else None."""
    usable = members.writable
    is_enough = (
        usable.count >= quorum.ensemble_size and len(usable.regions) >= quorum.min_regions
    )
    return Adherence.STRICT if is_enough else None
