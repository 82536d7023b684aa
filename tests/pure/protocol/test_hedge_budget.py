"""The budget of extra requests against a naive one, which keeps every event."""

import math

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.hedge_budget import (
    WINDOW_S,
    ExtraAccount,
    HedgeBudget,
    HedgeBudgetConfig,
)


def spent(budget: HedgeBudget, now_s: float, *, remote_bytes: int = 0) -> int:
    count = 0
    while budget.take(now_s, remote_bytes=remote_bytes):
        count += 1
    return count


def test_extra_requests_are_a_share_of_first_ones() -> None:
    budget = HedgeBudget(HedgeBudgetConfig(requests_share=0.03, requests_per_s=1.0))
    for _ in range(1000):
        budget.on_first_request(50.0)

    assert spent(budget, 50.0) == 30
    assert budget.refused_count == 1


def test_a_reader_may_hedge_its_first_requests() -> None:
    assert spent(HedgeBudget(HedgeBudgetConfig()), 0.0) == WINDOW_S


def test_a_quiet_hour_saves_up_for_ten_seconds_only() -> None:
    budget = HedgeBudget(HedgeBudgetConfig(requests_share=0.03, requests_per_s=0.0))
    for second in range(3600):
        for _ in range(100):
            budget.on_first_request(float(second))

    assert spent(budget, 3599.5) == 30


def test_what_was_taken_is_forgotten_after_the_window() -> None:
    budget = HedgeBudget(HedgeBudgetConfig())

    assert spent(budget, 0.0) == WINDOW_S
    assert spent(budget, WINDOW_S - 0.01) == 0
    assert spent(budget, WINDOW_S) == WINDOW_S


def test_requests_to_another_region_need_room_in_both_budgets() -> None:
    config = HedgeBudgetConfig(
        requests_per_s=1.0, remote_bytes_share=0.1, remote_bytes_per_s=0.0
    )
    budget = HedgeBudget(config)
    budget.on_bytes(100_000, 5.0)

    assert spent(budget, 5.0, remote_bytes=4_000) == 2
    assert spent(budget, 5.0) == WINDOW_S - 2, "a refused request costs nothing"


@attrs.frozen
class Event:
    """After a pause, something is earned, or taken if there is room."""

    pause_s: float
    amount: int
    is_taken: bool


EVENTS = st.lists(
    st.builds(
        Event,
        pause_s=st.sampled_from([0.0, 0.1, 0.75, 1.0, 3.0, 9.5, 40.0]),
        amount=st.integers(1, 50),
        is_taken=st.booleans(),
    ),
    max_size=60,
)


@given(EVENTS, st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.5, 2.0]))
def test_an_account_goes_as_one_that_keeps_every_event(
    events: list[Event], share: float, floor_per_s: float
) -> None:
    account = ExtraAccount(share=share, floor_per_s=floor_per_s)
    past: list[tuple[float, int, bool]] = []
    now_s = 0.0
    for event in events:
        now_s += event.pause_s
        recent = [one for one in past if math.floor(one[0]) > math.floor(now_s) - WINDOW_S]
        earned = sum(amount for _, amount, is_taken in recent if not is_taken)
        taken = sum(amount for _, amount, is_taken in recent if is_taken)
        may_take = taken + event.amount <= max(floor_per_s * WINDOW_S, share * earned)

        assert account.has(event.amount, now_s) is may_take
        if not event.is_taken:
            account.earn(event.amount, now_s)
        elif may_take:
            account.take(event.amount, now_s)
        else:
            continue
        past.append((now_s, event.amount, event.is_taken))
