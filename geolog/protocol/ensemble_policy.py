"""Decides when to replace members of an open ledger, and which.

Theory of operation. An ensemble changes only when entries in flight cannot be acknowledged
without a change, or when a member has been away too long to be worth waiting for. Each change
costs a write to metadata, and a member that comes back soon has most of the ledger.

- Stuck (no ack set among the members that are up): change at once.
- Late (the oldest entry has waited too long): replace the members of its write set that have
  not confirmed it.
- Away (a member was out of reach for `member_away_s`): change calmly, and include members that
  have been away for half as long, since the nodes of a region do not fail at the same instant.
  Calm changes keep a minimum distance in time, so that a member that comes and goes is not
  chased round the cluster. After a failed try the pause doubles, while the ledger goes on with
  fewer copies.

The caller paces urgent changes itself, since entries are waiting for them.

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
        """Whether entries in flight wait for the change."""
        return self is not Need.AWAY


@attrs.frozen(kw_only=True)
class EnsembleView:
    """The members of a ledger as its writer sees them, by slot."""

    away_since_s: Mapping[int, float]
    """Members that are not up, with the time when each went away."""
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
    """The core of ensemble changes; one for each open ledger."""

    def __init__(self, *, member_away_s: float, change_distance_s: float) -> None:
        self._member_away_s = member_away_s
        self._change_distance_s = change_distance_s
        self._calm_not_before_s = float("-inf")
        self._failures_count = 0

    def due(self, view: EnsembleView, *, now_s: float) -> Replace | None:
        """The slots to replace now, if any."""
        wanted = self.wanted(view, now_s=now_s)
        if wanted is None:
            return None
        if not wanted.need.is_urgent and now_s < self._calm_not_before_s:
            return None
        return wanted

    def wanted(self, view: EnsembleView, *, now_s: float) -> Replace | None:
        """The slots to replace, even if it is too early for another try."""
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
        """No member could be replaced. Returns whether this is the first failure in a row."""
        pause_s = self._member_away_s * 2.0**self._failures_count
        self._calm_not_before_s = now_s + pause_s
        self._failures_count = min(self._failures_count + 1, PAUSE_DOUBLINGS_MAX)
        return self._failures_count == 1
