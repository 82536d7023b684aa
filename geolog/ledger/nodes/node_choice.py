"""Choosing nodes without holding up all else that the process does.

The search of a placement policy is bounded, but for large ensembles over uneven regions it may
take half a second. So large ones are chosen in a thread: a policy is pure, and what it is asked
about does not change. Small ones take a few milliseconds, and are chosen at once, in the order
in which they are asked for.
"""

import random
from collections.abc import Callable
from typing import TypeVar

import trio

AT_ONCE_SIZE_MAX = 15
"""Members of the largest ensemble that is chosen at once: the search takes 40 ms at most."""

_T = TypeVar("_T")


async def choose_nodes(
    ensemble_size: int, choose: Callable[[random.Random], _T], rng: random.Random
) -> _T:
    """What the policy's question `choose` gives; NotEnoughNodesError, as it raises it."""
    if ensemble_size <= AT_ONCE_SIZE_MAX:
        return choose(rng)
    drawn = random.Random(rng.getrandbits(64))  # Others draw from `rng` meanwhile.
    return await trio.to_thread.run_sync(choose, drawn)
