"""The state of a stream on its link: what is shown, and when it changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.relay_report import LinkState
from relay.protocol.link_state import LinkObservation, LinkStateBounds, LinkStateCore
from relay.protocol.outgoing import ChannelState

BOUNDS = LinkStateBounds(behind_s=5, caught_up_s=2, worse_s=2, better_s=3)
ORDER = list(LinkState)
LIVE = LinkObservation(ChannelState.LIVE, is_stopped=False, lag_s=0)
AWAY = LinkObservation(None, is_stopped=False, lag_s=0)


def behind(lag_s: float) -> LinkObservation:
    return LinkObservation(ChannelState.LIVE, is_stopped=False, lag_s=lag_s)


def shown_after(looks: list[tuple[float, LinkObservation]]) -> list[str]:
    """The changes of the state shown, as `time state`."""
    core = LinkStateCore(BOUNDS, now_s=0)
    changes = [(now_s, core.on_look(look, now_s=now_s)) for now_s, look in looks]
    return [f"{now_s:g} {found.value}" for now_s, found in changes if found is not None]


def test_a_short_interruption_is_not_shown() -> None:
    looks = [(t, AWAY if t == 6 else LIVE) for t in range(12)]

    assert shown_after([(float(t), look) for t, look in looks]) == ["3 live"]


def test_a_target_that_stays_away_is_shown_down_and_live_again_a_while_after() -> None:
    looks = [(float(t), AWAY if 5 <= t < 9 else LIVE) for t in range(16)]

    assert shown_after(looks) == ["3 live", "7 down", "12 live"]


def test_a_lag_between_the_bounds_keeps_the_state_that_it_came_from() -> None:
    lags = [0, 0, 0, 0, 4, 4, 4, 4, 6, 6, 6, 4, 4, 4, 4, 4, 1, 1, 1, 1]

    assert shown_after([(float(t), behind(lag)) for t, lag in enumerate(lags)]) == [
        "3 live",
        "10 behind",
        "19 live",
    ]


@pytest.mark.parametrize(
    ("look", "state"),
    [
        (LinkObservation(ChannelState.ASKING, is_stopped=False, lag_s=9), None),
        (LinkObservation(ChannelState.REPLAYING, is_stopped=False, lag_s=0), "replaying"),
        (LinkObservation(ChannelState.STOPPED, is_stopped=False, lag_s=0), "down"),
        (LinkObservation(ChannelState.LIVE, is_stopped=True, lag_s=0), "stopped"),
        (LinkObservation(None, is_stopped=False, is_failing=True, lag_s=0), "down"),
        (
            LinkObservation(ChannelState.ASKING, is_stopped=False, is_failing=True, lag_s=9),
            "down",
        ),
        (behind(60), "behind"),
        (LinkObservation(None, is_stopped=True, lag_s=60, is_paused=True), "paused"),
    ],
)
def test_each_observation_has_its_state(look: LinkObservation, state: str | None) -> None:
    changes = shown_after([(float(t), look) for t in range(9)])

    assert [one.split()[1] for one in changes] == ([] if state is None else [state])


def naive_changes(looks: list[tuple[float, LinkState]]) -> list[tuple[float, LinkState]]:
    """Looks back over the whole history at each look."""
    shown, changes, begin = LinkState.CONNECTING, [], 0
    for at, (now_s, found) in enumerate(looks):
        for side, hold_s in ((1, BOUNDS.worse_s), (-1, BOUNDS.better_s)):
            streak = []
            for look in reversed(looks[begin : at + 1]):
                if side * (ORDER.index(look[1]) - ORDER.index(shown)) <= 0:
                    break
                streak.append(look)
            if streak and now_s - streak[-1][0] >= hold_s:
                worst = max((one for _, one in streak), key=ORDER.index)
                shown = found if side > 0 else worst
                changes.append((now_s, shown))
                begin = at + 1
                break
    return changes


LOOKS = {
    LinkState.LIVE: LIVE,
    LinkState.REPLAYING: LinkObservation(ChannelState.REPLAYING, is_stopped=False, lag_s=0),
    LinkState.CONNECTING: LinkObservation(ChannelState.ASKING, is_stopped=False, lag_s=0),
    LinkState.DOWN: AWAY,
    LinkState.STOPPED: LinkObservation(None, is_stopped=True, lag_s=0),
}


@given(
    st.lists(
        st.tuples(st.sampled_from([0.25, 0.5, 1.0, 2.5]), st.sampled_from(list(LOOKS))),
        max_size=60,
    )
)
def test_changes_agree_with_a_look_back_over_the_whole_history(
    steps: list[tuple[float, LinkState]],
) -> None:
    looks, now_s = [], 0.0
    for pause_s, state in steps:
        now_s += pause_s
        looks.append((now_s, state))
    core = LinkStateCore(BOUNDS, now_s=0)
    found = [(t, core.on_look(LOOKS[state], now_s=t)) for t, state in looks]

    assert [(t, one) for t, one in found if one is not None] == naive_changes(looks)
