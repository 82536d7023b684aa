"""Ambushes for readers: the segment list changes unseen, or large answers come slowly."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from geolog.metadata.paths import ClusterPaths
from sim.world.faults.targets import clients_alive, paused, processes, receiving_slowly
from sim.world.process import Life
from sim.world.seams import CLUSTER
from sim.world.world import World

_SEGMENT_LISTED = re.compile(
    rf"create {re.escape(ClusterPaths(CLUSTER).streams)}/\S+/segments/\d+/\d+ "
)
_READER = "reader-"
_PIECES = (2, 3, 5, 10)
"""How many deliveries a reader gets before it is struck in the middle of its walk."""

_MUCH_BYTES = 4 << 10
"""A send of at least this size counts as many answers at once."""

_SLOW_S = 0.02
_WALK_S_MAX = 2.0
_TRUNCATION_S_MAX = 3.0


@asynccontextmanager
async def ambush_succession(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """As one segment is about to follow another, a reader's metadata server stops."""
    readers = [one for one in processes(world) if one.host.startswith(_READER)]
    able = [one for one in readers if one.life is Life.RUNNING and one.session is not None]
    if not able or not _SEGMENT_LISTED.search(details):
        yield None
        return
    reader = rng.choice(able)
    assert reader.session is not None
    reader.session.lag()
    try:
        yield f"{reader.host}; {process} lists a segment"
    finally:
        reader.session.catch_up()


@asynccontextmanager
async def ambush_walk(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """In the middle of a walk a reader is paused, and the next records may be trimmed."""
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


@asynccontextmanager
async def ambush_answers(
    world: World,
    rng: Random,  # noqa: ARG001 - the shape.
    process: str,
    details: str,
) -> AsyncIterator[str | None]:
    """A node gives a client much at once; the client takes it slowly, a little at a time."""
    _, client, count_bytes, *_ = details.split()
    is_much = process in world.nodes and int(count_bytes) >= _MUCH_BYTES
    if not is_much or client not in clients_alive(world):
        yield None
        return
    with receiving_slowly(world, client, _SLOW_S):
        yield f"{client}; {process} answers"


async def _event(world: World, event: str, *, of: str) -> None:
    """Wait until this event happens at a process."""
    while (await world.trace.wait(event))[0] != of:
        pass
