"""The error reported for records that were not sent (law 17)."""

from geolog.ledger.nodes.connection import NodeRefusedError
from geolog.protocol.append_failure import told_of_record
from geolog.protocol.messages import Reason
from topology.errors import FencedError, GeologError, OutcomeUnknownError


def test_a_record_without_a_number_is_refused() -> None:
    failure = FencedError("another writer owns a/b#0 now")

    assert told_of_record(failure, is_numbered=False) is failure


def test_for_a_numbered_record_the_same_failure_is_unknown() -> None:
    failure = FencedError("another writer owns a/b#0 now")

    told = told_of_record(failure, is_numbered=True)

    assert isinstance(told, FencedError)
    assert (told.outcome, failure.outcome) == ("unknown", "refused")
    assert str(failure) in str(told)
    assert told.__cause__ is failure


def test_a_failure_with_more_than_a_message_keeps_the_rest() -> None:
    failure: GeologError = NodeRefusedError("the node is read-only", Reason.READ_ONLY)

    told = told_of_record(failure, is_numbered=True)

    assert isinstance(told, NodeRefusedError)
    assert (told.reason, told.outcome) == (Reason.READ_ONLY, "unknown")


def test_an_unknown_outcome_stays_as_it_is() -> None:
    failure = OutcomeUnknownError("the answer was lost")

    assert told_of_record(failure, is_numbered=True) is failure
