"""How the fragments of a ledger were placed, judged by the terms frozen in its record."""

from geolog.protocol.ledger_state import Fragment, LedgerRecord
from topology.stream_policy import adherence_at
from topology.window_rule import Adherence


def adherence_as_recorded(record: LedgerRecord, fragment: Fragment) -> Adherence:
    """How well the ensemble was placed where its members stood then, lost ones included."""
    return adherence_at(
        record.placement,
        record.quorum,
        [(member.instance, member.location) for member in fragment.ensemble],
    )
