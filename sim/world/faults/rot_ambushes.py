"""An ambush for fences: the record of a fence rots, and the fenced writer comes back."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from random import Random

import trio

from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.world.faults.harm import harm_fence
from sim.world.faults.targets import cut_off, ledgers_now, nodes_harmable, writers_alive
from sim.world.process import Life, Process
from sim.world.seams import CLUSTER
from sim.world.world import World

_PATHS = ClusterPaths(CLUSTER)
_FENCED_S_MAX = 3.0
_BLIND_S = 10.0
"""How long a writer hears nothing from metadata after it wakes up."""


@asynccontextmanager
async def ambush_fence_record(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A member's record of a fence rots and it restarts; the old writer wakes up and adds."""
    record = _taken_over(world, details)
    members = [] if record is None else [one.node_id for one in record.fragments[-1].ensemble]
    harmable = [host for host in nodes_harmable(world) if host in members]
    old = [
        one for one in writers_alive(world) if one.host != process and one.life is Life.RUNNING
    ]
    if record is None or process in world.nodes or not harmable or not old:
        yield None
        return
    host = rng.choice(harmable)
    with ExitStack() as struck:
        for writer in old:
            # No other member may tell it that it was deposed.
            struck.enter_context(cut_off(world, writer.host, [o for o in members if o != host]))
        with _asleep(world, old):
            harmed = await _rot_of_fence(world, rng, record, host)
            if harmed is not None:
                await _restarted(world, host)
        yield harmed and f"{host} {harmed}; {', '.join(one.host for one in old)} wakes up"


def _taken_over(world: World, details: str) -> LedgerRecord | None:
    """The ledger whose record was just put, if that put begins its recovery."""
    if not details.startswith(f"put {_PATHS.ledgers}/"):
        return None
    path = details.split()[1]
    for record in ledgers_now(world):
        if record.state is LedgerState.IN_RECOVERY and record.segment:
            if path == _PATHS.ledger(record.ledger):
                return record
    return None


@contextmanager
def _asleep(world: World, writers: list[Process]) -> Iterator[None]:
    """Pause writers; after they wake up they hear nothing from metadata for a while."""
    for writer in writers:
        world.pause(writer.host)
    try:
        yield
    finally:
        for writer in writers:
            world.resume(writer, blind_s=_BLIND_S)


async def _rot_of_fence(
    world: World, rng: Random, record: LedgerRecord, host: str
) -> str | None:
    """Wait until a mark covers the record of the fence, then harm that record."""
    with trio.move_on_after(_FENCED_S_MAX):
        while True:
            await world.trace.wait("disk-sync")
            if host not in nodes_harmable(world):
                continue
            core = world.cores[host]
            store = core.service.store_of(record.ledger)
            bay = world.nodes[host].bays[core.service.stores.index(store)]
            harmed = harm_fence(bay.disk, record.ledger, rng)
            if harmed is not None:
                world.harmed.add(core.instance)
                return harmed
    return None


async def _restarted(world: World, host: str) -> None:
    """Restart a node, and wait a while for it to answer."""
    world.kill(host)
    world.restart(host)
    with trio.move_on_after(_FENCED_S_MAX):
        while host not in world.cores:
            await world.trace.wait("disk-sync")
