"""Faults of the network: bytes are lost, late, or arrive in part."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from sim.world.faults.targets import (
    cut_off,
    isolated,
    receiving_slowly,
    writers_alive,
)
from sim.world.world import World


@contextmanager
def cut_writer(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a writer and some of the storage nodes."""
    writers = writers_alive(world)
    if not writers:
        yield None
        return
    writer = rng.choice(writers).host
    nodes = sorted(world.nodes)
    away = rng.sample(nodes, rng.randint(1, len(nodes) - 1))
    with cut_off(world, writer, away):
        yield f"{writer}: {', '.join(away)}"


@contextmanager
def cut_link(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between two hosts."""
    one, other = rng.sample(sorted(world.links.region_of), 2)
    world.network.cut(one, other)
    try:
        yield f"{one} {other}"
    finally:
        world.network.mend(one, other)


@contextmanager
def cut_one_way(world: World, rng: Random) -> Iterator[str | None]:
    """One host does not hear another, which still hears it."""
    one, other = rng.sample(sorted(world.links.region_of), 2)
    world.network.cut_one_way(one, other)
    try:
        yield f"{one} {other}"
    finally:
        world.network.mend(one, other)


@contextmanager
def isolate_region(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a region and the others, which keep metadata."""
    region = rng.choice(world.options.shape.regions)
    inside = [host for host, where in sorted(world.links.region_of.items()) if where == region]
    with isolated(world, rng, inside):
        yield region


@contextmanager
def isolate_host(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a host and all others, metadata included."""
    host = rng.choice(sorted(world.links.region_of))
    with isolated(world, rng, [host]):
        yield host


@contextmanager
def reset_connection(world: World, rng: Random) -> Iterator[str | None]:
    """A connection breaks, at any byte in flight."""
    host = rng.choice(sorted(world.links.region_of))
    streams = world.network.streams_of(host)
    if not streams:
        yield None
        return
    stream = rng.choice(streams)
    kept_bytes = rng.randint(0, stream.under_way_bytes)
    stream.break_after(kept_bytes)
    yield f"{stream.connection} {stream.host} {stream.peer_host} {kept_bytes}"


@contextmanager
def slow_host(world: World, rng: Random) -> Iterator[str | None]:
    """A host receives slowly, a little at a time."""
    host = rng.choice(sorted(world.links.region_of))
    with receiving_slowly(world, host, rng.choice((0.001, 0.02))):
        yield host
