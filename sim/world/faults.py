"""What may befall a world: each fault strikes something, lasts, and ends.

A fault is a context manager: it begins when it is entered, gives the name of what it struck,
and ends when it is left, also because all faults stop. One that finds nothing to strike gives
None.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random

import trio

from sim.memory_disk import MemoryDisk
from sim.world.process import Life, Process
from sim.world.world import World

Fault = Callable[[World, Random], AbstractContextManager[str | None]]

_SLOW_DISK_FACTOR = 100.0
_CLOCK_JUMP_US = 3600 * 1_000_000
_AMBUSH_S_MAX = 5.0
_AMBUSH_ROUND_TRIPS = 4
_ZOMBIE_BLIND_S = (0.0, 3.0, 10.0)
"""How long a writer that wakes up hears nothing of metadata, and so believes in itself."""


async def strike_for_ever(world: World, kind: str, strikes_per_s: float, rng: Random) -> None:
    """Let faults of a kind strike, one after the other; cancelling ends the one that lasts."""
    while True:
        await trio.sleep(rng.expovariate(strikes_per_s))
        if world.options.hazards.lies_in_wait:
            with trio.move_on_after(_AMBUSH_S_MAX):
                await world.ledger_changed.wait()
            round_trip_s = 2 * world.options.links.latency_s_across
            await trio.sleep(rng.random() * _AMBUSH_ROUND_TRIPS * round_trip_s)
        with FAULTS[kind](world, rng) as struck:
            if struck is None:
                continue
            world.struck[kind] += 1
            world.trace.add("-", "fault-on", f"{kind} {struck}")
            try:
                await trio.sleep(rng.random() * world.options.hazards.duration_s_max)
            finally:
                world.trace.add("-", "fault-off", f"{kind} {struck}")


# Processes.


@contextmanager
def kill_node(world: World, rng: Random) -> Iterator[str | None]:
    """A storage node is killed, and started again later."""
    with _down(world, _one_of(rng, _nodes_alive(world)), power_loss=False) as struck:
        yield struck


@contextmanager
def power_loss_node(world: World, rng: Random) -> Iterator[str | None]:
    """A storage node's machine loses power; what was not synced may be gone."""
    with _down(world, _one_of(rng, _nodes_alive(world)), power_loss=True) as struck:
        yield struck


@contextmanager
def power_loss_region(world: World, rng: Random) -> Iterator[str | None]:
    """All storage nodes of a region lose power."""
    region = rng.choice(world.options.shape.regions)
    hosts = [host for host in _nodes_alive(world) if world.nodes[host].region == region]
    with _all_down(world, hosts) as struck:
        yield struck and f"{region}: {struck}"


@contextmanager
def power_loss_all(world: World, rng: Random) -> Iterator[str | None]:  # noqa: ARG001 - the shape.
    """All storage nodes lose power at once."""
    with _all_down(world, _nodes_alive(world)) as struck:
        yield struck


@contextmanager
def kill_client(world: World, rng: Random) -> Iterator[str | None]:
    """A client process is killed, and another is started in its place later."""
    with _down(world, _one_of(rng, _clients_alive(world)), power_loss=False) as struck:
        yield struck


@contextmanager
def pause_process(world: World, rng: Random) -> Iterator[str | None]:
    """A process stands still for a while, and goes on as if nothing had been."""
    running = [one for one in _processes(world) if one.life is Life.RUNNING]
    if not running:
        yield None
        return
    process = rng.choice(running)
    world.pause(process.host)
    try:
        yield process.host
    finally:
        world.resume(process)


@contextmanager
def zombie_writer(world: World, rng: Random) -> Iterator[str | None]:
    """A writer stands still, others take over, nodes restart; it goes on without metadata."""
    running = [one for one in _writers_alive(world) if one.life is Life.RUNNING]
    if not running:
        yield None
        return
    writer = rng.choice(running)
    world.pause(writer.host)
    try:
        yield writer.host
    finally:
        power_loss = rng.random() < 0.5
        for host in _nodes_alive(world):
            if rng.random() < 0.8:
                world.kill(host, power_loss=power_loss)
                world.restart(host)
        world.resume(writer, blind_s=rng.choice(_ZOMBIE_BLIND_S))


# The network.


@contextmanager
def cut_writer(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a writer and some of the storage nodes."""
    writers = _writers_alive(world)
    if not writers:
        yield None
        return
    writer = rng.choice(writers).host
    nodes = sorted(world.nodes)
    away = rng.sample(nodes, rng.randint(1, len(nodes) - 1))
    for node in away:
        world.network.cut(writer, node)
    try:
        yield f"{writer}: {', '.join(away)}"
    finally:
        for node in away:
            world.network.mend(writer, node)


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
    """One host does not hear another, which hears it."""
    one, other = rng.sample(sorted(world.links.region_of), 2)
    world.network.cut_one_way(one, other)
    try:
        yield f"{one} {other}"
    finally:
        world.network.mend(one, other)


@contextmanager
def isolate_region(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a region and the others; metadata is with the others."""
    region = rng.choice(world.options.shape.regions)
    inside = [host for host, where in sorted(world.links.region_of.items()) if where == region]
    with _isolated(world, rng, inside):
        yield region


@contextmanager
def isolate_host(world: World, rng: Random) -> Iterator[str | None]:
    """Nothing passes between a host and all others, metadata included."""
    host = rng.choice(sorted(world.links.region_of))
    with _isolated(world, rng, [host]):
        yield host


@contextmanager
def reset_connection(world: World, rng: Random) -> Iterator[str | None]:
    """A connection breaks, at any byte of what is under way."""
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
    """A host receives slowly, and little at a time."""
    host = rng.choice(sorted(world.links.region_of))
    world.links.receive_delays_s[host] = rng.choice((0.001, 0.02))
    try:
        yield host
    finally:
        world.links.receive_delays_s.pop(host, None)


# Disks.


@contextmanager
def slow_disk(world: World, rng: Random) -> Iterator[str | None]:
    """The syncs of a disk take a hundred times as long."""
    node = world.nodes[rng.choice(sorted(world.nodes))]
    node.sync_factor = _SLOW_DISK_FACTOR
    try:
        yield node.node_id
    finally:
        node.sync_factor = 1.0


@contextmanager
def disk_error(world: World, rng: Random) -> Iterator[str | None]:
    """A write or a sync of a node fails: the process ends, and is started again later."""
    host = _one_of(rng, _nodes_alive(world))
    if host is None:
        yield None
        return
    disk = world.nodes[host].disk
    if rng.random() < 0.5:
        disk.faults.write_failing = disk.writes_count + rng.randint(1, 3)
    else:
        disk.faults.sync_failing = disk.syncs_count + rng.randint(1, 3)
    try:
        yield host
    finally:
        disk.faults.write_failing = disk.faults.sync_failing = None
        if host not in world.processes:
            world.restart(host)


@contextmanager
def disk_full(world: World, rng: Random) -> Iterator[str | None]:
    """A node's disk has little or no space left for a while."""
    node = world.nodes[rng.choice(sorted(world.nodes))]
    capacity_bytes = node.disk.capacity_bytes
    node.disk.capacity_bytes = node.disk.used_bytes + rng.choice((0, 1000, 100_000))
    try:
        yield node.node_id
    finally:
        node.disk.capacity_bytes = capacity_bytes


@contextmanager
def wrong_disk(world: World, rng: Random) -> Iterator[str | None]:
    """A node is started on an empty disk, or on an older copy of its own: it must refuse."""
    hosts = [one for one in _nodes_alive(world) if one in world.cores]
    host = _one_of(rng, hosts)
    if host is None or world.nodes[host].is_wrong_disk:
        yield None
        return
    node = world.nodes[host]
    if node.old_copy is None:
        world.kill(host)
        node.old_copy = node.disk.crash(keep_unsynced=True)
        world.restart(host)
        yield f"{host} copied"
        return
    world.kill(host)
    own, node.is_wrong_disk = node.disk, True
    node.disk = MemoryDisk() if rng.random() < 0.5 else node.old_copy.crash(keep_unsynced=True)
    world.restart(host)
    try:
        yield host
    finally:
        if host in world.processes:
            world.kill(host)
        node.disk, node.is_wrong_disk = own, False
        world.restart(host)


# Metadata.


@contextmanager
def metadata_cut(world: World, rng: Random) -> Iterator[str | None]:
    """A process does not reach the metadata store."""
    process = _one_process(world, rng)
    if process is None:
        yield None
        return
    with _without_metadata([process], rng):
        yield process.host


@contextmanager
def metadata_away(world: World, rng: Random) -> Iterator[str | None]:
    """No process reaches the metadata store."""
    with _without_metadata(_processes(world), rng):
        yield "everybody"


@contextmanager
def metadata_lag(world: World, rng: Random) -> Iterator[str | None]:
    """A process reads from a metadata server that is behind; its watches come late."""
    process = _one_process(world, rng)
    if process is None or process.session is None:
        yield None
        return
    process.session.lag()
    try:
        yield process.host
    finally:
        process.session.catch_up()


@contextmanager
def metadata_expiry(world: World, rng: Random) -> Iterator[str | None]:
    """The metadata store ends the session of a process that lives."""
    process = _one_process(world, rng)
    if process is None or process.session is None:
        yield None
        return
    process.session.expire()
    yield process.host


@contextmanager
def metadata_answer_lost(world: World, rng: Random) -> Iterator[str | None]:
    """A write is carried out, and its answer never comes."""
    process = _one_process(world, rng)
    if process is None or process.session is None:
        yield None
        return
    process.session.lose_next_answer()
    yield process.host


# Clocks.


@contextmanager
def clock_jump(world: World, rng: Random) -> Iterator[str | None]:
    """A host's wall clock is an hour off, to either side."""
    host = rng.choice(sorted(world.links.region_of))
    world.clock_offsets_us[host] = rng.choice((-_CLOCK_JUMP_US, _CLOCK_JUMP_US))
    try:
        yield host
    finally:
        world.clock_offsets_us.pop(host, None)


FAULTS: dict[str, Fault] = {
    "kill-node": kill_node,
    "power-loss-node": power_loss_node,
    "power-loss-region": power_loss_region,
    "power-loss-all": power_loss_all,
    "kill-client": kill_client,
    "pause-process": pause_process,
    "zombie-writer": zombie_writer,
    "cut-writer": cut_writer,
    "cut-link": cut_link,
    "cut-one-way": cut_one_way,
    "isolate-region": isolate_region,
    "isolate-host": isolate_host,
    "reset-connection": reset_connection,
    "slow-host": slow_host,
    "slow-disk": slow_disk,
    "disk-error": disk_error,
    "disk-full": disk_full,
    "wrong-disk": wrong_disk,
    "metadata-cut": metadata_cut,
    "metadata-away": metadata_away,
    "metadata-lag": metadata_lag,
    "metadata-expiry": metadata_expiry,
    "metadata-answer-lost": metadata_answer_lost,
    "clock-jump": clock_jump,
}
"""By name, as options and trace have it."""


# Whom they strike, and how they end.


def _processes(world: World) -> list[Process]:
    return [world.processes[host] for host in sorted(world.processes)]


def _one_process(world: World, rng: Random) -> Process | None:
    """One that has a session which nothing else holds back."""
    able = [one for one in _processes(world) if one.life is Life.RUNNING and one.session]
    return rng.choice(able) if able else None


def _nodes_alive(world: World) -> list[str]:
    return [host for host in sorted(world.processes) if host in world.nodes]


def _clients_alive(world: World) -> list[str]:
    return [host for host in sorted(world.processes) if host not in world.nodes]


def _writers_alive(world: World) -> list[Process]:
    return [one for one in _processes(world) if one.host.startswith("writer-")]


def _one_of(rng: Random, hosts: list[str]) -> str | None:
    return rng.choice(hosts) if hosts else None


@contextmanager
def _down(world: World, host: str | None, *, power_loss: bool) -> Iterator[str | None]:
    if host is None:
        yield None
        return
    world.kill(host, power_loss=power_loss)
    try:
        yield host
    finally:
        if host not in world.processes:
            world.restart(host)


@contextmanager
def _all_down(world: World, hosts: list[str]) -> Iterator[str | None]:
    with ExitStack() as down:
        for host in hosts:
            down.enter_context(_down(world, host, power_loss=True))
        yield ", ".join(hosts) or None


@contextmanager
def _isolated(world: World, rng: Random, inside: list[str]) -> Iterator[None]:
    outside = [host for host in sorted(world.links.region_of) if host not in inside]
    cut = [(one, other) for one in inside for other in outside]
    for one, other in cut:
        world.network.cut(one, other)
    try:
        with _without_metadata([one for one in _processes(world) if one.host in inside], rng):
            yield
    finally:
        for one, other in cut:
            world.network.mend(one, other)


@contextmanager
def _without_metadata(processes: list[Process], rng: Random) -> Iterator[None]:
    cut = [one for one in processes if one.life is Life.RUNNING and one.session is not None]
    for process in cut:
        assert process.session is not None
        process.session.cut_off(noticed_after_s=rng.choice((0.0, 0.3, 2.0)))
    try:
        yield
    finally:
        for process in cut:
            if process.life is Life.RUNNING and process.session is not None:
                process.session.restore()
