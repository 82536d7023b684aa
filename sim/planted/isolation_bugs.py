"""Defects of leases, by which a home that is cut off stops: each replaces a good method."""

from collections.abc import Iterable

from geolog.catalog.stream_homes import StreamHomes
from geolog.metadata.seam import Check, SessionState
from geolog.partition import home_failover
from geolog.partition.home_lease import HomeLease
from geolog.protocol.isolation_lease import IsolationLease, LeaseClocks
from geolog.protocol.stream_state import OwnerRecord, PartitionName
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.failover_draws import (
    with_homes_that_hear_late,
    with_homes_that_stop,
    with_leases_that_change,
)

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001


_on_answered = HomeLease.on_answered


def always_inside(lease: HomeLease) -> float:
    """Answer as if the lease never ended, once it has begun."""
    return 0.0 if lease._terms.metadata.session_state is SessionState.LOST else 1.0


def left_awake_s(lease: IsolationLease, now: LeaseClocks) -> float:
    """Let the lease stand still while the machine sleeps."""
    if lease._since is None:
        return 0.0
    return max(0.0, lease.length_s - (now.monotonic_s - lease._since.monotonic_s))


def go_on_in_the_next_session(lease: IsolationLease, session: int) -> None:
    """Renew the lease in whatever session the write was answered."""
    asked, lease._asked = lease._asked, None
    if asked is not None:
        lease._session, lease._since = session, asked.at


def outlive_the_session(lease: IsolationLease) -> None:
    """Keep the lease of a session that was lost, for the next one to renew."""
    lease._since = None


def count_from_the_answer(lease: HomeLease, session: int) -> None:
    """Have the lease count from the answer of the write that renewed it."""
    asked = lease._core._asked
    if asked is not None:
        lease._core.on_asked(asked.session, lease._terms.clocks())
    _on_answered(lease, session)


async def check_nothing(
    _homes: StreamHomes, _name: PartitionName, _home_epoch: int
) -> list[Check]:
    """Renew without looking where the home is."""
    return []


def wait_for_no_lease(_length_s: float) -> float:
    """Fail over at once, though the old home may still answer."""
    return 0.0


def go_by_the_setting(setting_s: float | None, _owners: Iterable[OwnerRecord]) -> float:
    """Wait for the lease that the stream has now, whatever its owners have."""
    return setting_s or 0.0


ISOLATION_BUGS: dict[str, PlantedBug] = {
    "answers-after-its-lease": PlantedBug(
        29,
        "a home that stops when it is cut off answers after its lease",
        [(HomeLease, "left_s", always_inside)],
        drawn_for=with_homes_that_stop,
    ),
    "lease-outlives-its-session": PlantedBug(
        152,
        "a lease is renewed after its session was lost, wherever the home is by then",
        [
            (IsolationLease, "on_answered", go_on_in_the_next_session),
            (IsolationLease, "on_lost", outlive_the_session),
            (StreamHomes, "checks_to_renew", check_nothing),
        ],
        drawn_for=with_homes_that_stop,
    ),
    "lease-sleeps": PlantedBug(
        153,
        "a lease stands still while its owner's machine sleeps",
        [(IsolationLease, "left_s", left_awake_s)],
        drawn_for=with_homes_that_stop,
    ),
    "lease-from-the-answer": PlantedBug(
        160,
        "a lease counts from the answer of the write that renewed it, not from its sending",
        [(HomeLease, "on_answered", count_from_the_answer)],
        drawn_for=with_homes_that_hear_late,
    ),
    "failover-ignores-leases": PlantedBug(
        154,
        "a failover does not wait until every lease of the old home is over",
        [(home_failover, "wait_of_failover_s", wait_for_no_lease)],
        drawn_for=with_homes_that_stop,
    ),
    "failover-goes-by-the-setting": PlantedBug(
        167,
        "a failover waits for the lease that its stream has now, not for that of an owner",
        [(home_failover, "longest_lease_s", go_by_the_setting)],
        drawn_for=with_leases_that_change,
    ),
}
"""Defects of leases, by name."""
