"""A small world in which nothing happens unless a test does it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

import geolog
from sim.scheduling import run_seeded
from sim.world.draws.base_options import BASE
from sim.world.process import Process
from sim.world.trace import Trace
from sim.world.world import World, open_world

T = TypeVar("T")

_NODES_READY_S = 5.0

STREAM = "shop/orders"
REGIONS = BASE.shape.regions


def in_a_calm_world(story: Callable[[World], Awaitable[T]], trace: Trace | None = None) -> T:
    """Run a story in a world whose nodes are up."""

    async def run() -> T:
        async with open_world(BASE, 0, trace or Trace()) as world:
            await do(world, _found)
            return await story(world)

    return run_seeded(run, seed=0)


async def _found(_process: Process, log: geolog.Log) -> None:
    await trio.sleep(_NODES_READY_S)
    await log.create_stream(
        STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
    )


async def do(
    world: World, main: Callable[[Process, geolog.Log], Awaitable[None]], host: str = "client"
) -> Process:
    """Run a client process with this `main`, and wait until it has ended."""
    process = world.start_client(host, REGIONS[0], main, is_restarted=False)
    await process.ended.wait()
    assert process.error is None, process.error
    return process
