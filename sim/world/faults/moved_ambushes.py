"""Ambushes for readers without metadata: entries move to nodes they do not know."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from random import Random

import trio

from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.world.faults.targets import cut_off, down, ledgers_now, processes, without_metadata
from sim.world.process import Life, Process
from sim.world.world import World

_CHANGE_S_MAX = 2.0
_ANSWER_S_MAX = 1.0


@asynccontextmanager
async def ambush_moved(
    world: World, rng: Random, process: str, _details: str
) -> AsyncIterator[str | None]:
    """A reader lacks metadata while most members of a ledger are replaced, and come back."""
    # The member that stays misses an entry, then hears that it is acknowledged. So every
    # member that the reader knows really lacks it.
    reader = _a_reader(world, rng)
    record = _newest_open(world)
    if reader is None or record is None or not process.startswith("writer-"):
        yield None
        return
    stays, *others = rng.sample(_members(record), len(_members(record)))
    with without_metadata([reader], rng):
        with ExitStack() as gone:
            for other in others:
                gone.enter_context(down(world, other, power_loss=False))
            with trio.move_on_after(_CHANGE_S_MAX) as changing:
                while set(others) & set(_members(_newest_open(world) or record)):
                    await world.seams.ledger_changed.wait()
            if not changing.cancelled_caught:
                world.network.reset(process, stays)
                with cut_off(world, process, [stays]), trio.move_on_after(_ANSWER_S_MAX):
                    await _appended(world, process)
        yield f"{reader.host}; {', '.join(others)} went, {stays} stayed"


def _a_reader(world: World, rng: Random) -> Process | None:
    readers = [one for one in processes(world) if one.host.startswith("reader-")]
    able = [one for one in readers if one.life is Life.RUNNING and one.session is not None]
    return rng.choice(able) if able else None


def _newest_open(world: World) -> LedgerRecord | None:
    found = [one for one in ledgers_now(world) if one.state is LedgerState.OPEN]
    return found[-1] if found else None


def _members(record: LedgerRecord) -> list[str]:
    return [member.node_id for member in record.fragments[-1].ensemble]


async def _appended(world: World, process: str) -> None:
    """Wait until one of the process's calls succeeds."""
    while (await world.trace.wait("done"))[0] != process:
        pass
