"""Ambushes for planned moves of a home: somebody goes, or is cut off, between two steps."""

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from random import Random

import trio

from sim.world.apps.moving import MOVE_STEP
from sim.world.faults.relay_faults import coordinators, cut_regions
from sim.world.faults.targets import (
    down,
    nodes_alive,
    one_of,
    paused,
    processes,
    without_metadata,
    writers_alive,
)
from sim.world.process import Life, Process
from sim.world.world import World

_SOON_S_MAX = 0.3
_AT_THE_CHANGE_CHANCE = 0.4
_CHANGES_WITHIN_S = 2.0
_UNANSWERED_CHANCE = 0.5
_CHANGES_HOME = re.compile(r"put [^ ]*/home ")
_WAYS = (
    "the mover",
    "the mover",
    "an owner",
    "an owner",
    "coordinators",
    "all owners of a region",
    "a node",
    "regions",
    "metadata",
)
_ENDS = ("killed", "paused", "without a session", "without an answer", "without metadata")


@asynccontextmanager
async def ambush_move(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """In the middle of a move, its mover, owners or coordinators go, or regions are cut."""
    if not details.startswith(MOVE_STEP):
        yield None
        return
    way = rng.choice(_WAYS)
    if rng.random() < _AT_THE_CHANGE_CHANCE:
        way = "the mover"
        with trio.move_on_after(_CHANGES_WITHIN_S):
            await _home_changed_by(world, process)
            if rng.random() < _UNANSWERED_CHANCE:
                way = "the mover, unanswered"
                await _lose_its_answer(world, process)
    else:
        await trio.sleep(rng.random() * _SOON_S_MAX)
    with ExitStack() as lasting:
        struck = _strike(world, rng, process, way, lasting)
        yield struck and f"{process}, {details.removeprefix(MOVE_STEP)}; {struck}"


async def _home_changed_by(world: World, mover: str) -> None:
    """Wait until the mover asks metadata to mark the stream, or to change its home."""
    while True:
        who, details = await world.trace.wait("meta-ask")
        if who == mover and _CHANGES_HOME.search(details):
            return


async def _lose_its_answer(world: World, mover: str) -> None:
    """Carry the change out, and wait until the mover hears that its answer was lost."""
    process = world.processes.get(mover)
    if process is None or process.session is None:
        return
    process.session.lose_next_answer()
    while True:
        who, details = await world.trace.wait("meta-fail")
        if who == mover and _CHANGES_HOME.search(details):
            return


def _strike(world: World, rng: Random, mover: str, way: str, lasting: ExitStack) -> str | None:
    match way:
        case "the mover":
            one = world.processes.get(mover)
            return _end_somehow(world, rng, [] if one is None else [one], lasting)
        case "the mover, unanswered":
            cut = [one for one in (world.processes.get(mover),) if one is not None]
            lasting.enter_context(without_metadata(cut, rng))
            return f"{mover} without an answer, then without metadata" if cut else None
        case "an owner":
            those = writers_alive(world)
            return _end_somehow(world, rng, [rng.choice(those)] if those else [], lasting)
        case "all owners of a region":
            region = rng.choice(world.options.shape.regions)
            those = [one for one in writers_alive(world) if one.region == region]
            return _end_somehow(world, rng, those, lasting)
        case "coordinators":
            hosts = coordinators(world)
            struck = [host for host in hosts if rng.random() < 0.5] or hosts[:1]
            return _end_somehow(world, rng, [world.processes[one] for one in struck], lasting)
        case "a node":
            host = one_of(rng, nodes_alive(world))
            return lasting.enter_context(down(world, host, power_loss=rng.random() < 0.5))
        case "regions":
            return lasting.enter_context(cut_regions(world, rng))
        case _:
            lasting.enter_context(without_metadata(processes(world), rng))
            return "metadata away"


def _end_somehow(
    world: World, rng: Random, those: list[Process], lasting: ExitStack
) -> str | None:
    """End running processes, or take from them what they need, all in the same way."""
    running = [one for one in those if one.life is Life.RUNNING and one.session is not None]
    how = rng.choice(_ENDS)
    for one in running:
        assert one.session is not None
        match how:
            case "killed":
                lasting.enter_context(down(world, one.host, power_loss=False))
            case "paused":
                lasting.enter_context(paused(world, one.host))
            case "without a session":
                one.session.expire()
            case "without an answer":
                one.session.lose_next_answer()
            case _:
                lasting.enter_context(without_metadata([one], rng))
    return f"{', '.join(one.host for one in running)} {how}" if running else None
