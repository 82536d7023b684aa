"""Ambushes for disks: a node uses a new file before its name is on disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from sim.world.faults.targets import down
from sim.world.world import World

_USED_S_MAX = 2.0


@asynccontextmanager
async def ambush_create(
    world: World,
    rng: Random,  # noqa: ARG001 - the shape.
    process: str,
    details: str,
) -> AsyncIterator[str | None]:
    """A node has answered for data in a file that it just created: it loses power."""
    *_, made_as, name = details.split()
    with trio.move_on_after(_USED_S_MAX) as using:
        await _synced(world, process, {made_as, name})
        await _said_something(world, process)
    is_used = process in world.nodes and process in world.processes
    is_used = is_used and not using.cancelled_caught
    with down(world, process if is_used else None, power_loss=True) as struck:
        yield struck and f"{struck}, which had created {name}"


async def _synced(world: World, process: str, names: set[str]) -> None:
    """Wait until a sync of this file, which may go by its earlier name."""
    while True:
        host, details = await world.trace.wait("disk-sync")
        if host == process and details.split()[-1] in names:
            return


async def _said_something(world: World, process: str) -> None:
    while (await world.trace.wait("send"))[0] != process:
        pass
