"""Decides until when an owner that stops when it is cut off may answer.

Theory of operation. The owner of a stream with `on_isolation=stop` answers an append with OK
only inside its lease. It is renewed by a write in metadata that checks the home record: so it
is granted by a quorum, and only while the home is where it was. A read would not do, for a
server that is cut off itself still answers reads.

The lease counts from the moment before the write was sent, by two clocks: one that stands
still while the machine sleeps, and one that does not. It ends when the first of them says so,
less a margin for clocks that run slow. It belongs to one session; if that is lost, the lease is
over for good, and the owner has to take the partition over again.

A failover of such a stream first changes the home record, so that no lease can be renewed, and
then waits for the length of a lease before it writes a fork. Thus no owner of the old home
answers OK once the new home exists. An operator may change the length: an owner that is cut off
just then does not hear of it. So each claim of a partition notes the length by which its owner
goes, with the longest of those before it, and a failover waits for the longest of all. An owner
that left answers nothing any more, but its last answer may still be on its way to a client that
waits: its lease counts until the owner after it has outlived it.

Invariants:
1. The lease ends no later than its length after the sending of a write that was answered, by
   either clock.
2. A session that was lost never has a lease again.

Rules: PROTOCOL H25.
"""

from collections.abc import Iterable

import attrs

from geolog.protocol.stream_state import OwnerRecord
from topology.errors import InvalidArgumentError

_NEARLY = 1 - 1e-9
"""For a comparison of times that are computed in several ways."""

DRIFT = 0.02
"""Share by which a clock may run slow."""

RENEWED_AFTER = 0.25
"""Share of the length after which a lease is renewed."""


@attrs.frozen
class LeaseClocks:
    """The same moment by two clocks."""

    monotonic_s: float
    """Stands still while the machine sleeps."""
    boottime_s: float
    """Does not."""

    def passed_s(self, since: "LeaseClocks") -> float:
        """The time since then, by the clock that says more."""
        return max(self.monotonic_s - since.monotonic_s, self.boottime_s - since.boottime_s)


@attrs.frozen
class _Asked:
    session: int
    at: LeaseClocks


class IsolationLease:
    """The lease of one owner."""

    def __init__(self, length_s: float) -> None:
        """length_s: as the stream's record has it; failovers wait for it."""
        self.length_s = length_s
        self._session: int | None = None
        self._since: LeaseClocks | None = None
        self._asked: _Asked | None = None
        self.is_over = False
        """Whether it can never be renewed."""

    def __repr__(self) -> str:
        return f"IsolationLease({self.length_s:g} s, since {self._since})"

    def on_asked(self, session: int, now: LeaseClocks) -> None:
        """The write is about to be sent in this session."""
        self._asked = _Asked(session, now)

    def on_answered(self, session: int) -> None:
        """The write that was sent last has succeeded; this is the session now."""
        asked, self._asked = self._asked, None
        if asked is None or self.is_over:
            return
        if self._session is None:
            self._session = asked.session
        if not asked.session == session == self._session:
            self.on_lost()
            return
        self._since = asked.at

    def on_lost(self) -> None:
        """The session is over, or another process has taken the partition."""
        self.is_over = True
        self._since = None

    def left_s(self, now: LeaseClocks) -> float:
        """How long an OK may still be given, at most; 0 outside of the lease."""
        if self._since is None:
            return 0.0
        return max(0.0, self.length_s * (1 - DRIFT) - now.passed_s(self._since))


def longest_lease_s(setting_s: float | None, owners: Iterable[OwnerRecord]) -> float:
    """The longest lease that may be held at the home that is lost; 0 if there is none.

    setting_s: as the stream's record has it; None if its home answers always. owners: of its
    partitions there, as their records were once the home was marked as lost.
    """
    return max([setting_s or 0.0, *(one.lease_longest_s for one in owners)])


def wait_of_failover_s(length_s: float) -> float:
    """How long a failover waits from its mark, so that every lease of this length is over."""
    return length_s * (1 + DRIFT)


def outlived_s(owned_s: float) -> float:
    """The longest lease, of an owner that left, that its successor has outlived by now."""
    return owned_s / (1 + DRIFT)


def lease_length_s(session_timeout_s: float, tick_s: float | None = None) -> float:
    """The length of leases, for the session time-out of the process that asks.

    Two thirds of it; less where that does not leave two ticks of the metadata store.
    tick_s: None for metadata that has no tick. InvalidArgumentError if the lease would be
    shorter than a tick.
    """
    length_s = session_timeout_s * 2 / 3
    if tick_s is None:
        return length_s
    length_s = min(length_s, session_timeout_s - 2 * tick_s)
    if length_s < tick_s * _NEARLY:
        raise InvalidArgumentError(
            "on_isolation='stop' leaves no time for a lease: a session ends after"
            f" {session_timeout_s:g} s, and ZooKeeper's tick is {tick_s:g} s. Shorten the tick"
            f" (tickTime of the servers) to at most {session_timeout_s / 3:g} s"
        )
    return length_s
