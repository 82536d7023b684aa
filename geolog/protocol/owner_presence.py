"""Decides when a process shows that it is alive, which owners to release, and when to retry.

Theory of operation. A process that owns partitions shows that it is alive by one ephemeral
node, which all its owner records name. The node goes with the session that made it. So the core
keeps the session in which the node was last known to be made, and `due` compares it with the
current one. What counts is that session, not the one that is current when it is first looked
at: a process whose session was lost right after it took a partition is hidden, and stays hidden
until its node is made again. That takes one request, however many owners there are.

A claim comes before the owner: it is named before the request to metadata. If the request ends
neither with the partition nor with the certainty that another has it, the claim may still
succeed, now or later. The owner that may be there is then treated as having left. Owners that
have left are released, each in its own request.

After a session is lost, an owner may have been deposed unheard: its stream may be gone. So once
the process is shown again, all owners that live are confirmed, in one request. An owner that
proves to be deposed has left.

The node, and each owner, has at most one request under way. Failed requests are repeated after
a growing pause, drawn at random between half of it and all of it, up to `PAUSE_S_MAX`. A hidden
process pauses for at most `PAUSE_SHARE` of a session time-out, because it must be shown before
readers take its owners for dead, and they wait for half of one. A new session resets the
pauses, and so does a connection that comes back in the same session: what is due is then due
within the first pause. Requests that metadata refuses for good are repeated seldom, since only
an operator can help.

Invariants:
1. An owner that has left is released, and never confirmed again.
2. The node is in at most one request at a time, and so is each owner.
3. While requests are answered, the process is shown in the current session, from its first
   claim on.
4. Every claim is refused for certain, taken, or released; an owner can also be given away.

Rules: PROTOCOL O12, O13 and O14.
"""

import math
import random
from collections.abc import Iterable, Sequence

import attrs

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 4.0
"""Maximum pause after repeated failures to show a process, or to confirm or release owners."""

PAUSE_SHARE = 1 / 8
"""Maximum pause of a hidden process, as a share of a session time-out."""

REFUSED_PAUSE_S_MAX = 60.0
"""Maximum pause of an owner whose release metadata refuses again and again."""

_MISSES_COUNTED_MAX = 30
"""More misses than this no longer change a pause."""

NO_SESSION = 0


@attrs.frozen
class Show:
    """Make the process's node in the current session."""


@attrs.frozen
class Confirm:
    """Find out which of these owners were deposed."""

    owners: Sequence[str]


@attrs.frozen
class Release:
    """Record that this owner has left."""

    owner: str


Ask = Show | Confirm | Release


@attrs.define
class _Attempts:
    """Requests for one thing: at most one at a time, with growing pauses between failures."""

    is_under_way: bool = False
    _misses_count: int = 0
    _begun_in: int = NO_SESSION
    _not_before_s: float = 0.0

    def due_s(self, session: int) -> float:
        """When the next may begin in this session."""
        if self.is_under_way:
            return math.inf
        return self._not_before_s if self._begun_in == session else 0.0

    def begins(self, session: int, now_s: float) -> bool:
        """Begin one if it is due; whether it was."""
        assert not self.is_under_way
        if self._begun_in != session:
            self._begun_in = session
            self.reset()
        self.is_under_way = now_s >= self._not_before_s
        return self.is_under_way

    def reset(self, not_before_s: float = 0.0) -> None:
        """Forget earlier failures; the next is due at that time, or sooner."""
        self._misses_count = 0
        self._not_before_s = min(self._not_before_s, not_before_s)

    def succeed(self) -> None:
        """End the one under way."""
        self.is_under_way = False
        self._misses_count = 0

    def fail(self, now_s: float, pause_s_max: float, share: float) -> None:
        """End the one under way, and pause for that share of the pause that is due."""
        self.is_under_way = False
        pause_s = min(pause_s_max, PAUSE_S_MIN * 2.0**self._misses_count)
        self._misses_count = min(self._misses_count + 1, _MISSES_COUNTED_MAX)
        self._not_before_s = now_s + pause_s * share


@attrs.define
class _Owner:
    """State of one claim, or of the owner that it made."""

    attempts: _Attempts
    confirmed_in: int = NO_SESSION
    """The session in which it last owned its partition; `NO_SESSION` if unknown."""
    has_left: bool = False


class OwnerPresence:
    """One process and its owners. Each claim has its own name, even for one partition."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.is_wanted = False
        """Whether the process is to be shown: it has begun to claim partitions."""
        self._shown_in = NO_SESSION
        """The session that made its node; `NO_SESSION` if unknown."""
        self._showing = _Attempts()
        self._owners: dict[str, _Owner] = {}

    def __repr__(self) -> str:
        return f"OwnerPresence({len(self._owners)} owners, shown in session {self._shown_in})"

    def __len__(self) -> int:
        return len(self._owners)

    # The process and its node.

    def on_wanted(self) -> None:
        """The process is about to claim a partition: it is shown from now on."""
        self.is_wanted = True

    def is_hidden(self, session: int) -> bool:
        """Whether the process is not known to be shown in this session."""
        return self._shown_in != session

    def on_shown(self, session: int) -> None:
        """The node was made, or found, in that session."""
        self._shown_in = session
        self._showing.reset()

    def on_absent(self) -> None:
        """The node may have disappeared, even in the current session."""
        self._shown_in = NO_SESSION

    def on_show_ended(self, now_s: float, *, is_done: bool, session_timeout_s: float) -> None:
        """A `Show` has ended; `on_shown` came first if it is known to have succeeded."""
        if is_done:
            self._showing.succeed()
            return
        pause_s_max = min(PAUSE_S_MAX, PAUSE_SHARE * session_timeout_s)
        self._showing.fail(now_s, pause_s_max, self._share())

    # Claims and their owners.

    def on_claimed(self, owner: str) -> None:
        """Metadata is about to be asked for a partition in this owner's name."""
        assert owner not in self._owners, f"{owner} is claimed twice"
        self._owners[owner] = _Owner(_Attempts(is_under_way=True))

    def on_refused(self, owner: str) -> None:
        """The partition is another owner's, for certain."""
        del self._owners[owner]

    def on_taken(self, owner: str, session: int) -> None:
        """An owner has taken its partition in that session; `NO_SESSION` if unknown."""
        self._owners[owner].attempts.succeed()
        self._owners[owner].confirmed_in = session

    def on_in_doubt(self, owner: str) -> None:
        """The claim may succeed now or later, and is no longer wanted."""
        self._owners[owner].attempts.succeed()
        self.on_left(owner)

    def on_left(self, owner: str) -> None:
        """An owner has failed or closed, or was deposed."""
        left = self._owners[owner]
        if not left.has_left:
            left.has_left = True
            left.attempts.reset()

    def on_confirmed(self, owners: Iterable[str], session: int) -> None:
        """These owners still owned their partitions in that session, as far as is known."""
        for owner in owners:
            if owner in self._owners:
                self._owners[owner].attempts.succeed()
                self._owners[owner].confirmed_in = session

    def on_missed(self, owners: Iterable[str], now_s: float) -> None:
        """The request for these owners failed, or its outcome is unknown."""
        share = self._share()  # One share, so that they are confirmed together again.
        for owner in owners:
            if owner in self._owners:
                self._owners[owner].attempts.fail(now_s, PAUSE_S_MAX, share)

    def on_refused_release(self, owner: str, now_s: float) -> None:
        """Metadata refuses the release of an owner, and asking again soon does not help."""
        if owner in self._owners:
            self._owners[owner].attempts.fail(now_s, REFUSED_PAUSE_S_MAX, self._share())

    def on_released(self, owner: str) -> None:
        """The release of an owner that had left succeeded."""
        released = self._owners.pop(owner)
        assert released.has_left, f"{owner} was released, but has not left"

    def on_given(self, owner: str) -> None:
        """A successor's claim has replaced the owner's; an answer under way is ignored."""
        del self._owners[owner]

    # What to ask, and when.

    def on_connected(self, now_s: float) -> None:
        """Metadata can be reached again, possibly in the same session."""
        soon_s = now_s + PAUSE_S_MIN * self._rng.uniform(0.0, 1.0)  # All at once.
        self._showing.reset(soon_s)
        for owner in self._owners.values():
            owner.attempts.reset(soon_s)

    def next_due_s(self, session: int) -> float:
        """When `due` next has a request for this session, if nothing happens until then."""
        due_s = [
            owner.attempts.due_s(session)
            for owner in self._owners.values()
            if self._is_asked_about(owner, session)
        ]
        if self._is_to_be_shown(session):
            due_s.append(self._showing.due_s(session))
        return min(due_s, default=math.inf)

    def due(self, session: int, now_s: float) -> list[Ask]:
        """The requests to send now in this session; each is answered by one of the `on_…`."""
        asks: list[Ask] = []
        if self._is_to_be_shown(session) and self._showing.begins(session, now_s):
            asks.append(Show())
        confirmed: list[str] = []
        for name, owner in self._owners.items():
            if not self._is_asked_about(owner, session):
                continue
            if not owner.attempts.begins(session, now_s):
                continue
            if owner.has_left:
                asks.append(Release(name))
            else:
                confirmed.append(name)
        return [*asks, Confirm(confirmed)] if confirmed else asks

    def _is_to_be_shown(self, session: int) -> bool:
        return self.is_wanted and not self._showing.is_under_way and self.is_hidden(session)

    def _is_asked_about(self, owner: _Owner, session: int) -> bool:
        """Whether to confirm or release it. The process is shown first, as readers wait."""
        if owner.attempts.is_under_way:
            return False
        return owner.has_left or (owner.confirmed_in != session and not self.is_hidden(session))

    def _share(self) -> float:
        return self._rng.uniform(0.5, 1.0)
