"""Ambushes for copying: the target node ends while it receives copies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from sim.world.apps.operator import OPERATOR
from sim.world.faults.targets import down
from sim.world.world import World

_COPY_BYTES = 100
"""A request without entries is smaller than this."""


@asynccontextmanager
async def ambush_copy(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """An operator has just sent copies to a node: the node ends before it has them all."""
    _, node, count_bytes, *_ = details.split()
    is_copy = process.startswith(OPERATOR) and int(count_bytes) >= _COPY_BYTES
    if not is_copy or node not in world.cores:
        yield None
        return
    with down(world, node, power_loss=rng.random() < 0.5):
        yield f"{node}; {process} copies to it"
