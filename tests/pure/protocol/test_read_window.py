"""How far ahead a reader requests from a replica."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import InstanceId
from geolog.protocol.read_window import ANSWERS_MAX, ANSWERS_MIN, SHARE, ReadWindow, ReadWindows


def settled(*, round_trip_s: float, answer_s: float) -> ReadWindow:
    """The window after a while on a link that carries an answer in `answer_s`."""
    window = ReadWindow()
    for _ in range(10):
        count = window.answers
        window.on_answered(
            delay_s=round_trip_s + answer_s, took_s=(count - 1) * answer_s, count=count
        )
    return window


@pytest.mark.parametrize(
    ("round_trip_s", "answer_s"), [(0.08, 0.05), (0.15, 0.05), (0.05, 0.05), (0.22, 0.11)]
)
def test_the_link_idles_for_a_ninth_at_most(round_trip_s: float, answer_s: float) -> None:
    answers = settled(round_trip_s=round_trip_s, answer_s=answer_s).answers
    busy_s = answers * answer_s

    assert busy_s / (busy_s + round_trip_s) >= SHARE / (SHARE + 1)


def test_a_near_replica_gets_short_requests() -> None:
    assert settled(round_trip_s=0.0001, answer_s=0.01).answers <= 9


def test_the_window_grows_in_steps_and_not_for_one_late_answer() -> None:
    window = ReadWindow()
    window.on_answered(delay_s=9.0, took_s=0.003, count=4)

    assert window.answers == 2 * ANSWERS_MIN


def test_few_answers_change_nothing() -> None:
    window = ReadWindow(16)
    window.on_answered(delay_s=9.0, took_s=0.0, count=1)

    assert window.answers == 16


ANSWERED = st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(1, ANSWERS_MAX))


@given(st.lists(ANSWERED, max_size=50))
def test_the_window_never_leaves_its_bounds(seen: list[tuple[float, float, int]]) -> None:
    window = ReadWindow()
    for delay_s, took_s, count in seen:
        window.on_answered(delay_s=delay_s, took_s=took_s, count=count)
        assert ANSWERS_MIN <= window.answers <= ANSWERS_MAX


@given(asked=st.lists(st.integers(0, 6)))
def test_replicas_keep_their_windows_but_those_unused_longest(asked: list[int]) -> None:
    windows = ReadWindows(replicas_max=3)
    model: list[tuple[int, ReadWindow]] = []  # The replica unused for longest comes first.
    for number in asked:
        window = windows.of(InstanceId(str(number)))
        known = [one for one in model if one[0] == number]
        assert not known or window is known[0][1]
        assert all(window is not other for replica, other in model if replica != number)
        model = [*(one for one in model if one[0] != number), (number, window)][-3:]

    assert len(windows) == len(model)
