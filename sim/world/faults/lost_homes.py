"""The region where the stream is at home is lost, or only cut off, and comes back later."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

from sim.world.faults.targets import down, isolated, paused
from sim.world.truth import Truth
from sim.world.world import World

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


def _cut_nodes_off(world: World, inside: list[str], lasting: ExitStack) -> None:
    """Nobody elsewhere reaches the region, but all keep metadata."""
    outside = [host for host in sorted(world.links.region_of) if host not in inside]
    for one in inside:
        for other in outside:
            world.network.cut(one, other)
            lasting.callback(world.network.mend, one, other)
