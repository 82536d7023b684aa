"""Decides which of a process's owners to show as alive, which to release, and when to retry.

Theory of operation. An owner shows that it is alive by an ephemeral node, which goes with the
session that made it. What counts is that session, not the one that is current when the owner is
first looked at: an owner whose session was lost right after it took its partition is hidden,
and stays hidden until its node is made again. So the core keeps, for each owner, the session in
which its node was last known to be made. `due` compares it with the current session. Owners
that are hidden in the current session are shown, many in one request. Owners that have left are
released, each in its own request.

A claim comes before the owner: the owner's node is named before the request to metadata. If the
request ends neither with the partition nor with the certainty that another has it, the claim
may still succeed, now or later. The owner that may be there is then treated as having left, and
is released like any other.

An owner has at most one request under way, so a release waits for the showing before it, and no
node is left behind. Failed requests are repeated after a growing pause, drawn at random between
half of it and all of it, up to `PAUSE_S_MAX`. A hidden owner pauses for at most `PAUSE_SHARE`
of a session time-out, because it must be shown before readers take it for dead, and they wait
for half of one. A new session resets the pauses, and so does a connection that comes back in
the same session: hidden and leaving owners are then due within the first pause. Requests that
metadata refuses for good are repeated seldom, since only an operator can help.

Invariants:
1. An owner that has left is never shown again.
2. An owner is in at most one request at a time.
3. While requests are answered, every owner that has not left is shown in the current session.
4. Every claim is refused for certain, taken, or released.

Rules: PROTOCOL O12 and O13.
"""

import math
import random
from collections.abc import Iterable, Sequence

import attrs

SHOWN_AT_ONCE_MAX = 64
"""Owners shown by one request: a thousand owners take sixteen concurrent requests."""

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 4.0
"""Maximum pause after repeated failures to show or release an owner."""

PAUSE_SHARE = 1 / 8
"""Maximum pause of a hidden owner, as a share of a session time-out."""

REFUSED_PAUSE_S_MAX = 60.0
"""Maximum pause of an owner whose release metadata refuses again and again."""

_MISSES_COUNTED_MAX = 30
"""More misses than this no longer change a pause."""

NO_SESSION = 0


@attrs.frozen
class Show:
    """Make the nodes of these owners in the session that was given to `due`."""

    owners: Sequence[str]


@attrs.frozen
class Release:
    """Record that this owner has left, and remove its node."""

    owner: str


Ask = Show | Release


@attrs.define
class _Presence:
    """State of one owner."""

    shown_in: int
    """The session that made its node; `NO_SESSION` if unknown."""
    has_left: bool = False
    is_asked: bool = False
    misses_count: int = 0
    asked_in: int = NO_SESSION
    not_before_s: float = 0.0


class OwnerPresence:
    """The owners of one process. Each claim has its own name, even for one partition."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._presences: dict[str, _Presence] = {}

    def __repr__(self) -> str:
        hidden = sum(one.shown_in == NO_SESSION for one in self._presences.values())
        return f"OwnerPresence({len(self._presences)} owners, {hidden} hidden)"

    def __len__(self) -> int:
        return len(self._presences)

    def on_claimed(self, owner: str) -> None:
        """Metadata is about to be asked for a partition in this owner's name."""
        assert owner not in self._presences, f"{owner} is claimed twice"
        self._presences[owner] = _Presence(NO_SESSION, is_asked=True)

    def on_refused(self, owner: str) -> None:
        """The partition is another owner's, for certain."""
        del self._presences[owner]

    def on_taken(self, owner: str, session: int) -> None:
        """An owner has taken its partition; `session` is its node's, or `NO_SESSION`."""
        presence = self._presences[owner]
        presence.is_asked = False
        presence.shown_in = session

    def on_in_doubt(self, owner: str) -> None:
        """The claim may succeed now or later, and is no longer wanted."""
        self._presences[owner].is_asked = False
        self.on_left(owner)

    def on_left(self, owner: str) -> None:
        """An owner has failed or closed; it must not be shown again."""
        presence = self._presences[owner]
        if not presence.has_left:
            presence.has_left = True
            presence.not_before_s = 0.0

    def on_connected(self, now_s: float) -> None:
        """Metadata can be reached again, possibly in the same session."""
        soon_s = now_s + PAUSE_S_MIN * self._rng.uniform(0.0, 1.0)  # All at once: few requests.
        for presence in self._presences.values():
            presence.misses_count = 0
            presence.not_before_s = min(presence.not_before_s, soon_s)

    def next_due_s(self, session: int) -> float:
        """When `due` next has a request for this session, if nothing happens until then."""
        return min(
            (
                0.0 if presence.asked_in != session else presence.not_before_s
                for presence in self._presences.values()
                if not presence.is_asked
                and (presence.has_left or self._is_hidden(presence, session))
            ),
            default=math.inf,
        )

    def _is_hidden(self, presence: _Presence, session: int) -> bool:
        return presence.shown_in != session

    def due(self, session: int, now_s: float) -> list[Ask]:
        """The requests to send now in this session; each is answered by one of the `on_…`."""
        hidden: list[str] = []
        left: list[str] = []
        for owner, presence in self._presences.items():
            if presence.asked_in != session:
                presence.asked_in = session
                presence.misses_count, presence.not_before_s = 0, 0.0
            if presence.is_asked or now_s < presence.not_before_s:
                continue
            if presence.has_left:
                left.append(owner)
            elif self._is_hidden(presence, session):
                hidden.append(owner)
        for owner in (*hidden, *left):
            self._presences[owner].is_asked = True
        batches = range(0, len(hidden), SHOWN_AT_ONCE_MAX)
        return [
            *(Show(hidden[begin : begin + SHOWN_AT_ONCE_MAX]) for begin in batches),
            *(Release(owner) for owner in left),
        ]

    def on_shown(self, owners: Iterable[str], session: int) -> None:
        """The nodes of these owners were made, or found, in that session."""
        for owner in owners:
            presence = self._presences[owner]
            presence.is_asked = False
            presence.misses_count = 0
            presence.shown_in = session

    def on_missed(
        self, owners: Iterable[str], now_s: float, *, session_timeout_s: float
    ) -> None:
        """The request for these owners failed, or its outcome is unknown."""
        shown_pause_s_max = min(PAUSE_S_MAX, PAUSE_SHARE * session_timeout_s)
        share = self._rng.uniform(0.5, 1.0)  # One share, so that they are shown together again.
        for owner in owners:
            has_left = self._presences[owner].has_left
            self._pause(owner, now_s, PAUSE_S_MAX if has_left else shown_pause_s_max, share)

    def on_refused_release(self, owner: str, now_s: float) -> None:
        """Metadata refuses the release of an owner, and asking again soon does not help."""
        self._pause(owner, now_s, REFUSED_PAUSE_S_MAX, self._rng.uniform(0.5, 1.0))

    def _pause(self, owner: str, now_s: float, pause_s_max: float, share: float) -> None:
        presence = self._presences[owner]
        presence.is_asked = False
        pause_s = min(pause_s_max, PAUSE_S_MIN * 2.0**presence.misses_count)
        presence.misses_count = min(presence.misses_count + 1, _MISSES_COUNTED_MAX)
        presence.not_before_s = now_s + pause_s * share

    def on_released(self, owner: str) -> None:
        """The release of an owner that had left succeeded."""
        presence = self._presences.pop(owner)
        assert presence.has_left, f"{owner} was released, but has not left"
