"""The region where the stream is at home is lost, or only cut off, and comes back later."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from random import Random

import trio

from sim.world.apps.failing_over import FAILED_OVER
from sim.world.faults.targets import down, isolated, paused
from sim.world.truth import Truth
from sim.world.world import World

_BEGUN_S = (2.0, 5.0)
"""How long a new home takes appends, and others mirror them, before it is lost."""

_AHEAD_S = (0.5, 3.0, 3600.0)

_WAYS = ("killed", "without power", "nodes killed", "paused", "unheard")


@contextmanager
def home_lost(world: World, rng: Random) -> Iterator[str | None]:
    """The home is killed or paused; or nobody elsewhere reaches it, but all keep metadata."""
    home, _ = Truth(world.store).home
    if home is None:
        yield None
        return
    way = rng.choice(_WAYS)
    inside = [host for host, where in sorted(world.links.region_of.items()) if where == home]
    there = [host for host in inside if host in world.processes]
    with ExitStack() as lasting:
        match way:
            case "paused":
                for host in there:
                    lasting.enter_context(paused(world, host))
            case "unheard":
                _cut_nodes_off(world, inside, lasting)
            case _:
                for host in there:
                    if way != "nodes killed" or host in world.nodes:
                        is_dark = way == "without power" and host in world.nodes
                        lasting.enter_context(down(world, host, power_loss=is_dark))
        yield f"{home} {way}"


@contextmanager
def home_cut_off(world: World, rng: Random) -> Iterator[str | None]:
    """The home goes on alone, without metadata, and answers the writers of its region."""
    home, _ = Truth(world.store).home
    if home is None:
        yield None
        return
    inside = [host for host, where in sorted(world.links.region_of.items()) if where == home]
    with isolated(world, rng, inside):
        yield home


@contextmanager
def home_hears_late(world: World, rng: Random) -> Iterator[str | None]:
    """The home is cut off, and hears from metadata late, all at once, and then no more."""
    home, _ = Truth(world.store).home
    if home is None:
        yield None
        return
    inside = [host for host, where in sorted(world.links.region_of.items()) if where == home]
    # A client breaks a connection off that says nothing for two thirds of its time-out.
    late_s = rng.uniform(0.25, 0.6) * world.options.knobs.session_timeout_s
    with isolated(world, rng, inside, late_s=late_s):
        yield f"{home} {late_s:.3f} s"


@asynccontextmanager
async def home_lost_again(
    world: World, rng: Random, _process: str, details: str
) -> AsyncIterator[str | None]:
    """A home that a failover has just made is cut off, as the one before it was."""
    if not details.startswith(FAILED_OVER):
        yield None
        return
    await trio.sleep(rng.uniform(*_BEGUN_S))
    with home_cut_off(world, rng) as struck:
        yield struck


@contextmanager
def lease_clock(world: World, rng: Random) -> Iterator[str | None]:
    """Clocks by which a host keeps leases jump ahead: one, the other or both."""
    host = rng.choice(sorted(world.links.region_of))
    ahead_s = rng.choice(_AHEAD_S)
    monotonic_s, boottime_s = rng.choice(((ahead_s, 0.0), (0.0, ahead_s), (ahead_s, ahead_s)))
    world.jump_lease_clocks(host, monotonic_s=monotonic_s, boottime_s=boottime_s)
    yield f"{host} {monotonic_s:+g} s and {boottime_s:+g} s"


def _cut_nodes_off(world: World, inside: list[str], lasting: ExitStack) -> None:
    """Nobody elsewhere reaches the region, but all keep metadata."""
    outside = [host for host in sorted(world.links.region_of) if host not in inside]
    for one in inside:
        for other in outside:
            world.network.cut(one, other)
            lasting.callback(world.network.mend, one, other)
