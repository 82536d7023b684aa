"""When members of an open ledger are replaced, and which.

Theory of operation. An ensemble is changed only when entries in flight cannot be acknowledged
without it, or when a member has been away for so long that it is not worth waiting for: each
change costs a write to metadata, and a member that comes back soon has most of the ledger.

- Stuck (no ack set among the members that are up): at once.
- Late (the oldest entry has waited too long): those of its members that have not confirmed it.
- Away (a member is not reached for `member_away_s`): calmly, and others with it that have been
  away for half as long, since a region's nodes do not go at one instant. Such changes keep a
  distance from each other, so that a member that comes and goes is not chased round the
  cluster, and a try that fails is followed by a pause that doubles while the ledger goes on
  with fewer copies.

While a change is urgent its caller paces the tries: entries are waiting.

Rules: PROTOCOL W4 and W9.
"""

import enum
from collections.abc import Mapping

import attrs

PAUSE_DOUBLINGS_MAX = 5


class Need(enum.Enum):
    """Why members should be replaced."""

    STUCK = "stuck"
    LATE = "late"
    AWAY = "away"

    @property
    def is_urgent(self) -> bool:
        """Whether entries in flight wait for it."""
        return self is not Need.AWAY


@attrs.frozen(kw_only=True)
class EnsembleView:
    """What the ledger's writer sees of its members, by slot."""

    away_since_s: Mapping[int, float]
    """Members that are not up, and since when."""
    is_stuck: bool
    is_late: bool
    slots_late: tuple[int, ...]
    """Members that have not confirmed the oldest entry in flight."""


@attrs.frozen
class Replace:
    """Find other members for these slots."""

    slots: tuple[int, ...]
    need: Need


class EnsemblePolicy:
    """The core; one for each open ledger."""

    def __init__(self, *, member_away_s: float, change_distance_s: float) -> None:
        self._member_away_s = member_away_s
        self._change_distance_s = change_distance_s
        self._calm_not_before_s = float("-inf")
        self._failures_count = 0

    def due(self, view: EnsembleView, *, now_s: float) -> Replace | None:
        """What to replace now, if anything."""
        wanted = self.wanted(view, now_s=now_s)
        if wanted is None:
            return None
        if not wanted.need.is_urgent and now_s < self._calm_not_before_s:
            return None
        return wanted

    def wanted(self, view: EnsembleView, *, now_s: float) -> Replace | None:
        """The same, though it may not be time yet for another try."""
        if view.is_stuck:
            return Replace(tuple(sorted(view.away_since_s)), Need.STUCK)
        if view.is_late and view.slots_late:
            return Replace(tuple(sorted(view.slots_late)), Need.LATE)
        if not view.away_since_s:
            self._failures_count = 0
            return None
        if now_s - min(view.away_since_s.values()) < self._member_away_s:
            return None
        gone = [
            slot
            for slot, since_s in view.away_since_s.items()
            if now_s - since_s >= self._member_away_s / 2
        ]
        return Replace(tuple(sorted(gone)), Need.AWAY)

    def on_changed(self, *, now_s: float) -> None:
        """Members were replaced."""
        self._failures_count = 0
        self._calm_not_before_s = now_s + self._change_distance_s

    def on_failed(self, *, now_s: float) -> bool:
        """None could be replaced now; whether that is news."""
        pause_s = self._member_away_s * 2.0**self._failures_count
        self._calm_not_before_s = now_s + pause_s
        self._failures_count = min(self._failures_count + 1, PAUSE_DOUBLINGS_MAX)
        return self._failures_count == 1
