"""Faults of relays and of the links between their regions: most of the relay drill's matrix."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from random import Random

import trio

from geolog.background import open_background
from sim.world.faults.targets import cut_off, down, receiving_slowly, slowed
from sim.world.world import World

_COORDINATES = "coordinates in epoch"
"""A relay logs this when it begins to coordinate."""

_REPLAY_S_MAX = 0.3
_SUCCESSOR_CHANCE = 0.5
_FLAP_S_MAX = 0.5
_SLOW_S = (0.001, 0.01)
_LATE_S = (0.2, 1.0, 3.0)


@contextmanager
def relays_gone(world: World, rng: Random) -> Iterator[str | None]:
    """All relays of a region are killed at once, and stay away."""
    region = rng.choice(world.options.shape.regions)
    those = [host for host in relays_of(world, region) if host in world.processes]
    with ExitStack() as gone:
        for host in those:
            gone.enter_context(down(world, host, power_loss=False))
        yield f"{region}: {', '.join(those)}" if those else None


@contextmanager
def lost_leave(world: World, rng: Random) -> Iterator[str | None]:
    """A coordinator leaves in good order, but another region does not hear of it."""
    those = [host for host in coordinators(world) if not world.relays[host].to_leave.is_set()]
    if not those:
        yield None
        return
    host = rng.choice(those)
    other = rng.choice(
        [one for one in world.options.shape.regions if one != world.relays[host].region]
    )
    with cut_off(world, host, _hosts_of(world, other)):
        world.relays[host].to_leave.set()
        yield f"{host}: unheard in {other}"


@contextmanager
def cut_regions(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between two regions; both keep metadata."""
    one, other = rng.sample(world.options.shape.regions, 2)
    with ExitStack() as cut:
        for host in _hosts_of(world, one):
            cut.enter_context(cut_off(world, host, _hosts_of(world, other)))
        yield f"{one} {other}"


@contextmanager
def cut_regions_one_way(world: World, rng: Random) -> Iterator[str | None]:
    """One region does not hear another, which still hears it; both keep metadata."""
    one, other = rng.sample(world.options.shape.regions, 2)
    ways = [
        (here, there) for here in _hosts_of(world, one) for there in _hosts_of(world, other)
    ]
    for here, there in ways:
        world.network.cut_one_way(here, there)
    try:
        yield f"{one} to {other}"
    finally:
        for here, there in ways:
            world.network.mend(here, there)


@contextmanager
def slow_one_way(world: World, rng: Random) -> Iterator[str | None]:
    """What one region sends to another is late by up to seconds; the other way is as fast."""
    one, other = rng.sample(world.options.shape.regions, 2)
    delay_s = rng.choice(_LATE_S)
    world.links.way_delays_s[one, other] = delay_s
    try:
        yield f"{one} to {other} {delay_s:g} s"
    finally:
        world.links.way_delays_s.pop((one, other), None)


@contextmanager
def slow_target(world: World, rng: Random) -> Iterator[str | None]:
    """A region's relays and nodes receive slowly, and its disks are slow."""
    region = rng.choice(world.options.relay_to)
    delay_s = rng.choice(_SLOW_S)
    with ExitStack() as slow:
        for host in _hosts_of(world, region):
            if host in world.nodes:
                slow.enter_context(slowed(world, host))
            if host in world.nodes or host in world.relays:
                slow.enter_context(receiving_slowly(world, host, delay_s))
        yield region


@asynccontextmanager
async def flapping_link(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A relay hears from another region: their link fails and heals, again and again."""
    _, sender, *_ = details.split()
    regions = world.links.region_of
    if process not in world.relays or regions.get(sender) == regions[process]:
        yield None
        return
    async with open_background() as nursery:
        nursery.start_soon(_flap, world, rng, process, sender)
        yield f"{process} {sender}"


@asynccontextmanager
async def ambush_replay(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A relay has just become coordinator: it is killed, or one of another region is."""
    if _COORDINATES not in details:
        yield None
        return
    await trio.sleep(rng.random() * _REPLAY_S_MAX)
    successor = process.rpartition(".")[0]
    elsewhere = [host for host in coordinators(world) if host != successor]
    is_it = rng.random() < _SUCCESSOR_CHANCE or not elsewhere
    struck = successor if is_it else rng.choice(elsewhere)
    with down(world, struck if struck in world.processes else None, power_loss=False) as gone:
        yield gone and f"{successor} coordinates; {gone}"


async def _flap(world: World, rng: Random, one: str, other: str) -> None:
    while True:
        with cut_off(world, one, [other]):
            await trio.sleep(rng.random() * _FLAP_S_MAX)
        await trio.sleep(rng.random() * _FLAP_S_MAX)


def coordinators(world: World) -> list[str]:
    """Relays with a live process that coordinate their region."""
    return [
        host
        for host in sorted(world.relays)
        if host in world.processes and any(one.ends for one in world.relays[host].relays[-1:])
    ]


def relays_of(world: World, region: str) -> list[str]:
    """The hosts of a region's relays."""
    return [host for host in sorted(world.relays) if world.relays[host].region == region]


def _hosts_of(world: World, region: str) -> list[str]:
    return [host for host, where in sorted(world.links.region_of.items()) if where == region]
