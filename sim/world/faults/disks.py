"""Faults of disks: slow, failing, full, damaged, lost, or swapped for another."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from sim.world.apps.operator import OPERATOR, replacing
from sim.world.faults.harm import harm_disk, harm_sector, is_newest_written
from sim.world.faults.targets import (
    nodes_alive,
    nodes_harmable,
    one_of,
    slowed_disks,
)
from sim.world.world import World

_MET_AT_START_CHANCE = 0.7
_PLACES_HARMED = (1, 1, 3)


@contextmanager
def slow_disk(world: World, rng: Random) -> Iterator[str | None]:
    """Syncs and reads of a disk take a hundred times as long."""
    host = rng.choice(sorted(world.nodes))
    bay = world.nodes[host].one_bay(rng)
    with slowed_disks([bay]):
        yield f"{host} {bay.disk}"


@contextmanager
def disk_error(world: World, rng: Random) -> Iterator[str | None]:
    """An operation on a node's disk fails: the process ends, and is restarted later."""
    host = one_of(rng, nodes_alive(world))
    if host is None:
        yield None
        return
    bay = world.nodes[host].one_bay(rng)
    failure = bay.failure
    failure.at = failure.seen_count + rng.choice((1, 2, 3, 10, 30))
    try:
        yield f"{host} {bay.disk}"
    finally:
        failure.at = None
        if host not in world.processes:
            world.restart(host)


@contextmanager
def disk_full(world: World, rng: Random) -> Iterator[str | None]:
    """A node's disk has little or no space left for a while."""
    node = world.nodes[rng.choice(sorted(world.nodes))]
    bay = node.one_bay(rng)
    capacity_bytes = bay.disk.capacity_bytes
    bay.disk.capacity_bytes = bay.disk.used_bytes + rng.choice((0, 1000, 100_000))
    try:
        yield f"{node.node_id} {bay.disk}"
    finally:
        bay.disk.capacity_bytes = capacity_bytes


@contextmanager
def wrong_disk(world: World, rng: Random) -> Iterator[str | None]:
    """A node starts on an empty disk or an old copy of its own; it must refuse."""
    hosts = [one for one in nodes_alive(world) if one in world.cores]
    host = one_of(rng, hosts)
    if host is None or world.nodes[host].is_refusal_due:
        yield None
        return
    node = world.nodes[host]
    bay = node.one_bay(rng)
    if bay.old_copy is None:
        world.kill(host)
        copy = bay.disk.crash(keep_unsynced=True)
        # A node accepts an empty file as its own, so such a copy may be as good as the disk.
        bay.old_copy = copy if is_newest_written(copy) else None
        world.restart(host)
        yield f"{host} {bay.disk} copied"
        return
    world.kill(host)
    own, node.is_wrong_disk = [each.disk for each in node.bays], True
    if rng.random() < 0.5:
        bay.empty()
    else:
        bay.disk = bay.old_copy.crash(keep_unsynced=True)
    world.restart(host)
    try:
        yield f"{host} {bay.disk}"
    finally:
        if host in world.processes:
            world.kill(host)
        for each, disk in zip(node.bays, own, strict=True):
            each.disk = disk
        node.is_wrong_disk = False
        world.restart(host)


@contextmanager
def bit_rot(world: World, rng: Random) -> Iterator[str | None]:
    """Synced bytes of a node change or vanish; the node may find out at its next start."""
    host = one_of(rng, nodes_harmable(world))
    if host is None:
        yield None
        return
    disk = world.nodes[host].one_bay(rng).disk
    harms = [harm_disk(disk, rng) for _ in range(rng.choice(_PLACES_HARMED))]
    words = [harm for harm in harms if harm is not None]
    if not words:
        # Nothing is below a mark yet: a restart begins another file.
        world.kill(host)
        world.restart(host)
        yield f"{host} restarted"
        return
    world.harmed.add(world.cores[host].instance)
    if rng.random() < _MET_AT_START_CHANCE:
        world.kill(host)
        world.restart(host)
    yield f"{host} {disk} {', '.join(words)}"


@contextmanager
def unreadable_sector(world: World, rng: Random) -> Iterator[str | None]:
    """A sector of a node's disk cannot be read; the node may find out at its next start."""
    host = one_of(rng, nodes_harmable(world))
    if host is None:
        yield None
        return
    disk = world.nodes[host].one_bay(rng).disk
    harms = [harm_sector(disk, rng) for _ in range(rng.choice(_PLACES_HARMED))]
    words = ", ".join(harm for harm in harms if harm is not None)
    world.harmed.add(world.cores[host].instance)
    if rng.random() < _MET_AT_START_CHANCE:
        world.kill(host)
        world.restart(host)
    yield f"{host} {disk} {words}" if words else None


@contextmanager
def replaced_disk(world: World, rng: Random) -> Iterator[str | None]:
    """A node loses its disks; an operator replaces them with empty ones."""
    host = one_of(rng, nodes_harmable(world))
    if host is None or OPERATOR + host in world.processes:
        yield None
        return
    node = world.nodes[host]
    world.kill(host, power_loss=True)
    node.empty_disks()
    node.is_being_replaced = True
    world.start_client(OPERATOR + host, node.region, replacing(world, host))
    try:
        yield host
    finally:
        if host not in world.processes:
            world.restart(host)
