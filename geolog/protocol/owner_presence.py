"""Which owners of a process are to be shown as living, and which are to go; when to ask again.

Theory of operation. An owner shows that it lives by an ephemeral node, which goes with the
session in which it was made. What counts is that session, not the one that is current when
somebody first looks: an owner whose session was lost right after it took its partition is
hidden, and stays so until its node is made again. So the core keeps, of each owner, the session
in which its node was last known to be made. `due` compares with the session of now: owners that
are hidden in it are shown, many in one request; those that have left are released, each alone.

A claim comes before the owner: what is to be its node is named before metadata is asked for the
partition. If that ends in any other way than with the partition, or with the certainty that
another has it, what was claimed may be ours all the same, now or later. Then the owner that may
be there has left at once, and is released like any other.

Nothing is asked twice at a time of one owner, so a release comes after the showing that was
under way, and no node is left behind. What failed is asked again after a pause that grows, by
chance between half of it and all, up to `PAUSE_S_MAX`. A hidden owner rests for no longer than
`PAUSE_SHARE` of a session time-out: it has to be shown before readers take it for dead, and
they wait for half of one. A new session is a new beginning, and so is a connection that comes
back in the same session: what is hidden, or left, is due within the first pause. What metadata
refuses for good is asked again seldom, as only an operator can help.

Invariants:
1. An owner that has left is never shown again.
2. An owner is in at most one request at a time.
3. As long as requests are answered, all that have not left are shown in the session of now.
4. What was claimed is refused for certain, taken, or released.

Rules: PROTOCOL O12 and O13.
"""

import math
import random
from collections.abc import Iterable, Sequence

import attrs

SHOWN_AT_ONCE_MAX = 64
"""Owners that one request shows: a thousand take sixteen, which are under way together."""

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 4.0
"""How long an owner waits at most that could not be shown, or released, again and again."""

PAUSE_SHARE = 1 / 8
"""What part of a session time-out an owner waits at most that could not be shown."""

REFUSED_PAUSE_S_MAX = 60.0
"""How long an owner waits at most whose release metadata refuses again and again."""

_MISSES_COUNTED_MAX = 30
"""By then each pause is the longest."""

NO_SESSION = 0


@attrs.frozen
class Show:
    """Make the nodes of these owners, in the session that was named."""

    owners: Sequence[str]


@attrs.frozen
class Release:
    """Say that this owner has left, and take its node away."""

    owner: str


Ask = Show | Release


@attrs.define
class _Presence:
    """One owner."""

    shown_in: int
    """The session that its node was made in; `NO_SESSION` if none is known."""
    has_left: bool = False
    is_asked: bool = False
    misses_count: int = 0
    asked_in: int = NO_SESSION
    not_before_s: float = 0.0


class OwnerPresence:
    """The owners of one process. Each claim has a name of its own, of one partition too."""

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
        """What was claimed is another's, for certain."""
        del self._presences[owner]

    def on_taken(self, owner: str, session: int) -> None:
        """An owner has taken its partition; `session` is that of its node, if it is known."""
        presence = self._presences[owner]
        presence.is_asked = False
        presence.shown_in = session

    def on_in_doubt(self, owner: str) -> None:
        """What was claimed may be this owner's, or come to be, and is not wanted any more."""
        self._presences[owner].is_asked = False
        self.on_left(owner)

    def on_left(self, owner: str) -> None:
        """An owner has failed, or closed: it is not to be shown any more."""
        presence = self._presences[owner]
        if not presence.has_left:
            presence.has_left = True
            presence.not_before_s = 0.0

    def on_connected(self, now_s: float) -> None:
        """Metadata can be reached again, maybe in the same session."""
        soon_s = now_s + PAUSE_S_MIN * self._rng.uniform(0.0, 1.0)  # Together, in few requests.
        for presence in self._presences.values():
            presence.misses_count = 0
            presence.not_before_s = min(presence.not_before_s, soon_s)

    def next_due_s(self, session: int) -> float:
        """When `due` has something to ask in this session, if nothing happens till then."""
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
        """What is to be asked now, in this session; each is answered by one of the `on_…`."""
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
        """What was asked of these owners failed, or its outcome is not known."""
        shown_pause_s_max = min(PAUSE_S_MAX, PAUSE_SHARE * session_timeout_s)
        share = self._rng.uniform(0.5, 1.0)  # One for all: they are shown together again.
        for owner in owners:
            has_left = self._presences[owner].has_left
            self._pause(owner, now_s, PAUSE_S_MAX if has_left else shown_pause_s_max, share)

    def on_refused_release(self, owner: str, now_s: float) -> None:
        """Metadata says no to the release of an owner, and asking again does not help soon."""
        self._pause(owner, now_s, REFUSED_PAUSE_S_MAX, self._rng.uniform(0.5, 1.0))

    def _pause(self, owner: str, now_s: float, pause_s_max: float, share: float) -> None:
        presence = self._presences[owner]
        presence.is_asked = False
        pause_s = min(pause_s_max, PAUSE_S_MIN * 2.0**presence.misses_count)
        presence.misses_count = min(presence.misses_count + 1, _MISSES_COUNTED_MAX)
        presence.not_before_s = now_s + pause_s * share

    def on_released(self, owner: str) -> None:
        """An owner that had left is gone."""
        presence = self._presences.pop(owner)
        assert presence.has_left, f"{owner} is released, and has not left"
