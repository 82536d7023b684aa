"""Chooses nodes without blocking the event loop.

A placement search is bounded, but for a large ensemble over uneven regions it may take half a
second. So large ensembles are chosen in a thread, which is safe because a policy is pure and
its arguments do not change. Small ensembles take a few milliseconds and are chosen inline, in
the order of the requests.
"""

import random
from collections.abc import Callable
from typing import TypeVar

import trio

AT_ONCE_SIZE_MAX = 15
"""Largest ensemble that is chosen inline: its search takes 40 ms at most."""

_T = TypeVar("_T")


async def choose_nodes(
    ensemble_size: int, choose: Callable[[random.Random], _T], rng: random.Random
) -> _T:
    """Run `choose`, inline or in a thread; NotEnoughNodesError if it raises that."""
    if ensemble_size <= AT_ONCE_SIZE_MAX:
        return choose(rng)
    drawn = random.Random(rng.getrandbits(64))  # Others may use `rng` during the search.
    return await trio.to_thread.run_sync(choose, drawn)
