"""Waiting for clients of a world: for one with a single task, or for all that must end."""

from collections.abc import Callable

from sim.world.apps.failing_over import RESCUER
from sim.world.apps.moving import MOVER
from sim.world.apps.operator import OPERATOR
from sim.world.process import Process
from sim.world.truth import Truth
from sim.world.world import ClientMain, World


async def run_client(
    world: World, host: str, main: ClientMain, *, region: str | None = None
) -> Process:
    """Run a process with a single task; return when it ends.

    region: if left out, that where the stream is at home.
    """
    if region is None:
        region = Truth(world.store).home[0] or world.options.shape.regions[0]
    process = world.start_client(host, region, main, is_restarted=False)
    await process.ended.wait()
    return process


async def wait_end(world: World, those: Callable[[World], list[str]]) -> None:
    """Wait until `those` finds no more hosts."""
    while hosts := those(world):
        await world.processes[hosts[0]].ended.wait()


def clients(world: World) -> list[str]:
    """Clients that must end soon when all is well."""
    others = {*world.nodes, *operators(world), *proxies(world), *relays(world)}
    return [host for host in sorted(world.processes) if host not in others]


def operators(world: World) -> list[str]:
    """Operators, which may still have bytes to copy."""
    return [host for host in sorted(world.processes) if host.startswith(OPERATOR)]


def movers(world: World) -> list[str]:
    """Operators that move the home of the stream, by plan or not."""
    return [host for host in sorted(world.processes) if host.startswith((MOVER, RESCUER))]


def proxies(world: World) -> list[str]:
    """Write proxies, which serve until they are drained."""
    return [host for host in sorted(world.processes) if host in world.proxies]


def relays(world: World) -> list[str]:
    """Relays, which serve until they are told to leave."""
    return [host for host in sorted(world.processes) if host in world.relays]
