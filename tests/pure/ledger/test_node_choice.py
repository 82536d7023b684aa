"""Choosing a large ensemble does not block the event loop, and depends only on the seed."""

import random
import threading

import trio
from trio.testing import MockClock

from geolog.ledger.nodes.node_choice import AT_ONCE_SIZE_MAX, choose_nodes

PATIENCE_S = 60.0


async def test_other_tasks_run_while_a_large_ensemble_is_chosen(mock_clock: MockClock) -> None:
    went_on = threading.Event()
    chosen: list[bool] = []

    async def choose() -> None:
        chosen.append(
            await choose_nodes(
                AT_ONCE_SIZE_MAX + 1, lambda _: went_on.wait(PATIENCE_S), random.Random(1)
            )
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(choose)
        await trio.testing.wait_all_tasks_blocked()
        went_on.set()

    assert chosen == [True]


async def test_small_ensembles_are_chosen_at_once_and_large_ones_depend_on_the_seed(
    mock_clock: MockClock,
) -> None:
    at_once = await choose_nodes(AT_ONCE_SIZE_MAX, random.Random.random, random.Random(1))
    large = [
        await choose_nodes(AT_ONCE_SIZE_MAX + 1, random.Random.random, random.Random(1))
        for _ in range(2)
    ]

    assert at_once == random.Random(1).random()
    assert large[0] == large[1]
