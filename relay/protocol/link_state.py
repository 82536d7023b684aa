"""The state of a stream on its link to one target, as people and alarms are told it.

Theory of operation. Observations change many times a second: a channel is asked
again, a lag crosses a bound and comes back. The state shown gets worse once every look for
`worse_s` found a worse one, and becomes the last of those; it gets better once every look for
`better_s` found a better one, and becomes the worst of those. The lag has two bounds: a stream
is behind above the higher one, and stays behind until it is below the lower one. So a change of
the state shown is worth a message, and a short interruption is none.

Rules: PROTOCOL T2 and T7.
"""

import attrs

from geolog.protocol.relay_report import LinkState
from geolog.wire.session.codes import Code
from relay.protocol.outgoing import ChannelState

_GRAVITY = {state: gravity for gravity, state in enumerate(LinkState)}

_LASTING = frozenset({Code.CONFLICT, Code.TRIMMED, Code.INTERNAL})
"""Mirror and home differ, records are gone at home, or records or bytes are lost."""


def needs_operator(code: int) -> bool:
    """Whether a channel that ended with this code cannot go on by itself.

    With any other code it is asked again, and goes on once the cause is over: nodes that are
    away, a link that is cut, a mirror that another relay has taken over.
    """
    return code in _LASTING


@attrs.frozen(kw_only=True)
class LinkStateBounds:
    """When the state of a stream on a link is shown as another one."""

    behind_s: float = 5.0
    """A stream whose lag is at least this is behind."""

    caught_up_s: float = 2.0
    """One that is behind stays so until its lag is below this."""

    worse_s: float = 2.0
    """Show a worse state once all looks for this long were worse."""

    better_s: float = 2.0
    """Show a better state once all looks for this long were better."""

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.caught_up_s <= self.behind_s


@attrs.frozen
class LinkObservation:
    """One look at a stream on a link."""

    channel: ChannelState | None
    """None without a channel: the target is not connected, or the channel was stopped."""
    is_stopped: bool
    """Whether the last channel ended for a reason that needs an operator, and no other has come
    further."""
    lag_s: float
    is_failing: bool = False
    """Whether it ended for another reason, and no other has come further."""
    is_paused: bool = False
    """Whether an operator has paused the target."""


@attrs.define
class _Streak:
    """Looks in a row that were all worse than the state shown, or all better."""

    is_worse: bool
    since_s: float
    worst: LinkState


class LinkStateCore:
    """One stream on the link to one target."""

    def __init__(self, bounds: LinkStateBounds, *, now_s: float) -> None:
        self._bounds = bounds
        self._shown = LinkState.CONNECTING
        self._is_behind = False
        self._streak: _Streak | None = None
        self.since_s = now_s
        """When the state shown was first shown."""

    def __repr__(self) -> str:
        return f"LinkStateCore({self._shown.value})"

    @property
    def shown(self) -> LinkState:
        """The state to show."""
        return self._shown

    def on_look(self, look: LinkObservation, *, now_s: float) -> LinkState | None:
        """Take an observation; the state that is shown from now on, if it changes."""
        found = self._observed(look)
        if found is self._shown:
            self._streak = None
            return None
        is_worse = _GRAVITY[found] > _GRAVITY[self._shown]
        streak = self._streak
        if streak is None or streak.is_worse is not is_worse:
            streak = self._streak = _Streak(is_worse, now_s, found)
        worst = max(streak.worst, found, key=_GRAVITY.__getitem__)
        streak.worst = worst
        hold_s = self._bounds.worse_s if is_worse else self._bounds.better_s
        if now_s - streak.since_s < hold_s:
            return None
        self._shown, self.since_s, self._streak = found if is_worse else worst, now_s, None
        return self._shown

    def _observed(self, look: LinkObservation) -> LinkState:
        bound_s = self._bounds.caught_up_s if self._is_behind else self._bounds.behind_s
        self._is_behind = look.lag_s >= bound_s
        if look.is_paused:
            return LinkState.PAUSED
        if look.is_stopped:
            return LinkState.STOPPED
        if look.is_failing or look.channel in (None, ChannelState.STOPPED):
            return LinkState.DOWN
        if look.channel is ChannelState.ASKING:
            return LinkState.CONNECTING
        if self._is_behind:
            return LinkState.BEHIND
        if look.channel is ChannelState.REPLAYING:
            return LinkState.REPLAYING
        return LinkState.LIVE
