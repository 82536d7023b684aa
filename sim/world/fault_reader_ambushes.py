"""Ambushes for readers: the list of segments grows behind their back, or goes as they walk."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from geolog.metadata.paths import ClusterPaths
from sim.world.fault_targets import paused, processes
from sim.world.process import Life
from sim.world.seams import CLUSTER
from sim.world.world import World

_SEGMENT_LISTED = re.compile(
    rf"create {re.escape(ClusterPaths(CLUSTER).streams)}/\S+/segments/\d+/\d+ "
)
_READER = "reader-"
_PIECES = (2, 3, 5, 10)
"""Of what the nodes give a reader, from the beginning of its walk until it is struck."""

_WALK_S_MAX = 2.0
_TRUNCATION_S_MAX = 3.0


@asynccontextmanager
async def ambush_succession(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A segment is about to follow another: a reader's metadata server stops before that."""
    readers = [one for one in processes(world) if one.host.startswith(_READER)]
    able = [one for one in readers if one.life is Life.RUNNING and one.session is not None]
    if not able or not _SEGMENT_LISTED.search(details):
        yield None
        return
    reader = rng.choice(able)
    assert reader.session is not None
    reader.session.lag()
    try:
        yield f"{reader.host}, as {process} lists a segment"
    finally:
        reader.session.catch_up()


@asynccontextmanager
async def ambush_walk(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A reader is in the middle of a walk: it stands still, and what comes next may go."""
    if not process.startswith(_READER) or not details.startswith("read"):
        yield None
        return
    with trio.move_on_after(_WALK_S_MAX) as walking:
        for _ in range(rng.choice(_PIECES)):
            await _event(world, "deliver", of=process)
    if walking.cancelled_caught:
        yield None
        return
    with paused(world, process):
        with trio.move_on_after(_TRUNCATION_S_MAX):
            await _event(world, "done", of="truncater")
        yield process


async def _event(world: World, event: str, *, of: str) -> None:
    """Wait until this happens at a process."""
    while (await world.trace.wait(event))[0] != of:
        pass
