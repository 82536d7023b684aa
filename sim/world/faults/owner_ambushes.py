"""Ambushes for owners: a session is lost before its owner first looks at it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from geolog.metadata.paths import ClusterPaths
from sim.world.process import Life
from sim.world.seams import CLUSTER
from sim.world.world import World

_STREAMS = re.escape(ClusterPaths(CLUSTER).streams)
_PRESENCES = re.escape(ClusterPaths(CLUSTER).presences)
_TAKEN = re.compile(rf"check {_PRESENCES}/\S+ @None, put {_STREAMS}/\S+/owner ")
_ACTIVATED = re.compile(rf"create {_STREAMS}/\S+/segments/\d+/\d+ ")
_SHOWN = re.compile(rf"create-ephemeral {_PRESENCES}/")

_ACTIVATION_S_MAX = 5.0
_REVIVAL_S_MAX = 2.0
_ANSWER_LOST_CHANCE = 0.5


@asynccontextmanager
async def ambush_ownership(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """An owner has just taken a partition: its session ends before it may write."""
    if not _TAKEN.match(details):
        yield None
        return
    with trio.move_on_after(_ACTIVATION_S_MAX) as waiting:
        await _asked(world, process, _ACTIVATED)
    owner = world.processes.get(process)
    is_there = owner is not None and owner.life is Life.RUNNING
    if waiting.cancelled_caught or owner is None or not is_there or owner.session is None:
        yield None
        return
    owner.session.expire()
    words = process
    if rng.random() < _ANSWER_LOST_CHANCE:
        with trio.move_on_after(_REVIVAL_S_MAX):
            await _asked(world, process, _SHOWN)
            owner.session.lose_next_answer()
            words += ", not told that its next session shows it"
    yield words


async def _asked(world: World, process: str, what: re.Pattern[str]) -> None:
    """Wait until the process makes a metadata request that matches."""
    while True:
        who, details = await world.trace.wait("meta-ask")
        if who == process and what.search(details):
            return
