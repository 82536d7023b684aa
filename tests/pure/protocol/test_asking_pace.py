"""Pauses between unanswered questions."""

import random

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.asking_pace import AskingPace


def a_pace(seed: int = 1) -> AskingPace:
    return AskingPace(pause_s_first=0.2, pause_s_max=5.0, rng=random.Random(seed))


def test_after_an_answer_the_next_question_is_due_at_once() -> None:
    pace = a_pace()
    assert pace.due_s < 0
    pace.on_failed(now_s=10.0)
    assert pace.due_s > 10.0
    pace.on_answered()
    assert pace.due_s < 0


@given(st.integers(), st.integers(1, 2000))
def test_pauses_double_up_to_their_bound_less_half_by_chance(seed: int, count: int) -> None:
    pace, now_s = a_pace(seed), 0.0
    for number in range(count):
        pace.on_failed(now_s=now_s)
        longest_s = min(0.2 * 2.0 ** min(number, 10), 5.0)
        assert longest_s / 2 <= pace.due_s - now_s <= longest_s
        now_s = pace.due_s


def test_the_first_pause_comes_again_after_an_answer() -> None:
    pace = a_pace()
    for _ in range(10):
        pace.on_failed(now_s=0.0)
    pace.on_answered()
    pace.on_failed(now_s=0.0)
    assert pace.due_s <= 0.2


@given(st.integers(), st.integers(1, 20))
def test_waiters_ask_soon_and_spread_out_when_the_peer_is_back(
    seed: int, failures: int
) -> None:
    pace = a_pace(seed)
    for _ in range(failures):
        pace.on_failed(now_s=0.0)
    before_s = pace.due_s
    pace.on_back(now_s=0.05)
    assert pace.due_s <= min(before_s, 0.25)
    assert pace.due_s >= min(before_s, 0.05)
