"""Faults of processes: kills, power loss, pauses, writers that wake up too late."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from sim.world.faults.targets import (
    all_down,
    clients_alive,
    down,
    nodes_alive,
    one_of,
    paused,
    processes,
    writers_alive,
)
from sim.world.process import Life
from sim.world.world import World

_ZOMBIE_BLIND_S = (0.0, 3.0, 10.0)
"""How long a writer hears nothing from metadata after waking, and so believes it is owner."""


@contextmanager
def kill_node(world: World, rng: Random) -> Iterator[str | None]:
    """A storage node is killed, and restarted later."""
    with down(world, one_of(rng, nodes_alive(world)), power_loss=False) as struck:
        yield struck


@contextmanager
def power_loss_node(world: World, rng: Random) -> Iterator[str | None]:
    """A storage node's machine loses power; unsynced data may be gone."""
    with down(world, one_of(rng, nodes_alive(world)), power_loss=True) as struck:
        yield struck


@contextmanager
def power_loss_region(world: World, rng: Random) -> Iterator[str | None]:
    """All storage nodes of a region lose power."""
    region = rng.choice(world.options.shape.regions)
    hosts = [host for host in nodes_alive(world) if world.nodes[host].region == region]
    with all_down(world, hosts) as struck:
        yield struck and f"{region}: {struck}"


@contextmanager
def power_loss_all(world: World, rng: Random) -> Iterator[str | None]:  # noqa: ARG001 - the shape.
    """All storage nodes lose power at once."""
    with all_down(world, nodes_alive(world)) as struck:
        yield struck


@contextmanager
def kill_client(world: World, rng: Random) -> Iterator[str | None]:
    """A client process is killed, and another takes its place later."""
    with down(world, one_of(rng, clients_alive(world)), power_loss=False) as struck:
        yield struck


@contextmanager
def drain_proxy(world: World, rng: Random) -> Iterator[str | None]:
    """A write proxy drains: it hands its partitions to others, ends, and is restarted."""
    serving = [
        host
        for host in sorted(world.processes)
        if host in world.proxies and not world.proxies[host].to_drain.is_set()
    ]
    host = one_of(rng, serving)
    if host is not None:
        world.proxies[host].to_drain.set()
    yield host


@contextmanager
def drain_relay(world: World, rng: Random) -> Iterator[str | None]:
    """A relay leaves in good order: another one coordinates first; it is restarted."""
    serving = [
        host
        for host in sorted(world.processes)
        if host in world.relays and not world.relays[host].to_leave.is_set()
    ]
    host = one_of(rng, serving)
    if host is not None:
        world.relays[host].to_leave.set()
    yield host


@contextmanager
def coordinators_gone(world: World, rng: Random) -> Iterator[str | None]:
    """Relays that coordinate are killed at once: of one region, or of several."""
    those = [
        host
        for host in sorted(world.processes)
        if host in world.relays and any(one.ends for one in world.relays[host].relays[-1:])
    ]
    struck = rng.sample(those, min(len(those), rng.choice((1, 1, 2))))
    for host in struck:
        world.kill(host)
    try:
        yield ", ".join(struck) or None
    finally:
        for host in struck:
            if host not in world.processes:
                world.restart(host)


@contextmanager
def zombie_relay(world: World, rng: Random) -> Iterator[str | None]:
    """A coordinator is paused until it is succeeded; it wakes without metadata."""
    those = [
        one
        for one in processes(world)
        if one.host in world.relays
        and one.life is Life.RUNNING
        and any(relay.ends for relay in world.relays[one.host].relays[-1:])
    ]
    if not those:
        yield None
        return
    struck = rng.choice(those)
    world.pause(struck.host)
    try:
        yield struck.host
    finally:
        world.resume(struck, blind_s=rng.choice(_ZOMBIE_BLIND_S))


@contextmanager
def pause_process(world: World, rng: Random) -> Iterator[str | None]:
    """A process is paused for a while, then goes on unaware."""
    running = [one for one in processes(world) if one.life is Life.RUNNING]
    if not running:
        yield None
        return
    host = rng.choice(running).host
    with paused(world, host):
        yield host


@contextmanager
def zombie_writer(world: World, rng: Random) -> Iterator[str | None]:
    """A writer is paused, others take over, nodes restart; it wakes without metadata."""
    running = [one for one in writers_alive(world) if one.life is Life.RUNNING]
    if not running:
        yield None
        return
    writer = rng.choice(running)
    world.pause(writer.host)
    try:
        yield writer.host
    finally:
        power_loss = rng.random() < 0.5
        for host in nodes_alive(world):
            if rng.random() < 0.8:
                world.kill(host, power_loss=power_loss)
                world.restart(host)
        world.resume(writer, blind_s=rng.choice(_ZOMBIE_BLIND_S))
