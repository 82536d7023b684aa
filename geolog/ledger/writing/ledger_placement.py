"""Judges the fragments of a ledger by the placement terms frozen in its record."""

import attrs

from geolog.protocol.ledger_state import Fragment, LedgerRecord
from topology.membership import KnownNode as ClusterMember
from topology.membership import Membership, NodeUse
from topology.own_policy import OwnPolicies
from topology.ring.window_rule import Adherence
from topology.stream_policy import adherence_at


def adherence_as_recorded(
    record: LedgerRecord, fragment: Fragment, own: OwnPolicies
) -> Adherence:
    """Adherence of the ensemble at the locations its members had then, lost ones included.

    own: the policies of other packages that this process knows.
    """
    return adherence_at(
        record.placement,
        record.quorum,
        [(member.instance, member.location) for member in fragment.ensemble],
        own,
    )


def with_members_of(fragment: Fragment, members: Membership) -> Membership:
    """The membership, with the ensemble's members at their recorded locations, known or not.

    The region that a member acknowledges for is frozen with the ledger, wherever it is now.
    """
    places: dict[str, ClusterMember] = {**members.members}
    for member in fragment.ensemble:
        known = members.members.get(member.instance) or ClusterMember(
            node=member.instance, location=member.location, state=NodeUse.DOWN
        )
        places[member.instance] = attrs.evolve(known, location=member.location)
    return Membership(members.config, places)
