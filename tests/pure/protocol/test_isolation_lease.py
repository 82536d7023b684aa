"""Until when an owner may answer that stops when it is cut off, whatever its clocks do."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.isolation_lease import (
    DRIFT,
    IsolationLease,
    LeaseClocks,
    wait_of_failover_s,
)

LENGTH_S = 4.0


def at(monotonic_s: float, boottime_s: float | None = None) -> LeaseClocks:
    return LeaseClocks(monotonic_s, monotonic_s if boottime_s is None else boottime_s)


def renewed(at_s: float, session: int = 1) -> IsolationLease:
    lease = IsolationLease(LENGTH_S)
    lease.on_asked(session, at(at_s))
    lease.on_answered(session)
    return lease


def test_there_is_no_lease_before_a_write_was_answered() -> None:
    lease = IsolationLease(LENGTH_S)
    lease.on_asked(1, at(10))

    assert lease.left_s(at(10)) == 0


def test_the_lease_counts_from_the_sending_of_the_write_and_not_from_its_answer() -> None:
    lease = IsolationLease(LENGTH_S)
    lease.on_asked(1, at(10))
    lease.on_answered(1)  # Three seconds later.

    assert lease.left_s(at(13)) == LENGTH_S * (1 - DRIFT) - 3


def test_a_machine_that_slept_has_no_lease_although_its_monotonic_clock_stood_still() -> None:
    assert renewed(10).left_s(at(10.1, 500)) == 0
    assert renewed(10).left_s(at(500, 10.1)) == 0


def test_a_session_that_was_lost_never_has_a_lease_again() -> None:
    lease = renewed(10)
    lease.on_asked(2, at(11))
    lease.on_answered(2)
    lease.on_asked(2, at(12))
    lease.on_answered(2)

    assert lease.is_over
    assert lease.left_s(at(12)) == 0


def test_an_answer_of_another_session_than_it_was_asked_in_renews_nothing() -> None:
    lease = renewed(10)
    lease.on_asked(1, at(13))
    lease.on_answered(2)

    assert lease.left_s(at(13)) == 0


@attrs.define
class Metadata:
    """The home record, and when it was marked as being failed over."""

    marked_s: float | None = None


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 6), st.booleans()), max_size=20),
    st.integers(0, 19),
    st.floats(-DRIFT / 2, DRIFT / 2),
)
def test_no_owner_answers_once_a_failover_has_waited(
    renewals: list[tuple[float, float, bool]], marked_before: int, drift: float
) -> None:
    """Renewals with the time to the next, the time of their answer, and whether one comes.

    The owner's clock runs fast or slow by the drift; the failover marks at some point.
    """
    lease, metadata = IsolationLease(LENGTH_S), Metadata()
    true_s = 0.0

    def owner_at(moment_s: float) -> LeaseClocks:
        return at(moment_s * (1 + drift))

    last_allowed_s = -1.0
    for number, (pause_s, answer_s, is_answered) in enumerate(renewals):
        if number == marked_before:
            metadata.marked_s = true_s
        lease.on_asked(1, owner_at(true_s))
        true_s += answer_s
        if is_answered and metadata.marked_s is None:  # The write checks the home record.
            lease.on_answered(1)
        true_s += pause_s
        left_s = lease.left_s(owner_at(true_s))
        if left_s > 0:
            last_allowed_s = true_s + left_s / (1 + drift)
    if metadata.marked_s is not None:
        assert last_allowed_s <= metadata.marked_s + wait_of_failover_s(LENGTH_S)
