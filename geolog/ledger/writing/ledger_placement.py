"""How the fragments of a ledger were placed, judged by the terms frozen in its record."""

import attrs

from geolog.protocol.ledger_state import Fragment, LedgerRecord
from topology.membership import KnownNode as ClusterMember
from topology.membership import Membership, NodeUse
from topology.ring.window_rule import Adherence
from topology.stream_policy import adherence_at


def adherence_as_recorded(record: LedgerRecord, fragment: Fragment) -> Adherence:
    """How well the ensemble was placed where its members stood then, lost ones included."""
    return adherence_at(
        record.placement,
        record.quorum,
        [(member.instance, member.location) for member in fragment.ensemble],
    )


def with_members_of(fragment: Fragment, members: Membership) -> Membership:
    """The membership with those of the ensemble where the record says, known or not.

    Who acknowledges for which region is frozen with the ledger, wherever a node stands now.
    """
    places: dict[str, ClusterMember] = {**members.members}
    for member in fragment.ensemble:
        known = members.members.get(member.instance) or ClusterMember(
            node=member.instance, location=member.location, state=NodeUse.DOWN
        )
        places[member.instance] = attrs.evolve(known, location=member.location)
    return Membership(members.config, places)
