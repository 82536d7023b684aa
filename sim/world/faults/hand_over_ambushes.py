"""Ambushes for hand-overs: one of the processes goes while a partition is given to another."""

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from random import Random

import trio

from geolog.metadata.paths import ClusterPaths
from sim.world.calls import HAND_OVER
from sim.world.faults.targets import down, paused, without_metadata
from sim.world.process import Life, Process
from sim.world.seams import CLUSTER
from sim.world.world import World

_GIVES = re.compile(rf"check {re.escape(ClusterPaths(CLUSTER).offers)}/")
_GIVES_WITHIN_S = 1.0
_SOON_S_MAX = 0.3
_AT_THE_GIVE_CHANCE = 0.5
_GIVER_CHANCE = 0.5
_WAYS = ("killed", "paused", "without a session", "without an answer", "without metadata")


@asynccontextmanager
async def ambush_hand_over(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """While partitions are given away, the giver or another owner goes, or loses metadata."""
    if not details.startswith(HAND_OVER):
        yield None
        return
    if rng.random() < _AT_THE_GIVE_CHANCE:
        with trio.move_on_after(_GIVES_WITHIN_S):
            await _given_by(world, process)
    else:
        await trio.sleep(rng.random() * _SOON_S_MAX)
    owners = [host for host in sorted(world.processes) if host[:-1] == process[:-1]]
    others = [host for host in owners if host != process]
    struck = process if rng.random() < _GIVER_CHANCE or not others else rng.choice(others)
    owner = world.processes.get(struck)
    if owner is None or owner.life is not Life.RUNNING or owner.session is None:
        yield None
        return
    how = rng.choice(_WAYS)
    with ExitStack() as lasting:
        _strike(world, rng, owner, how, lasting)
        yield f"{process} gives away; {struck} {how}"


def _strike(world: World, rng: Random, owner: Process, how: str, lasting: ExitStack) -> None:
    assert owner.session is not None
    match how:
        case "killed":
            lasting.enter_context(down(world, owner.host, power_loss=False))
        case "paused":
            lasting.enter_context(paused(world, owner.host))
        case "without a session":
            owner.session.expire()
        case "without an answer":
            owner.session.lose_next_answer()
        case _:
            lasting.enter_context(without_metadata([owner], rng))


async def _given_by(world: World, process: str) -> None:
    """Wait until the process asks metadata to make others the owners."""
    while True:
        who, details = await world.trace.wait("meta-ask")
        if who == process and _GIVES.match(details):
            return
