"""The targets of faults, and the context managers that several faults share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ledger_state import LedgerRecord
from sim.world.node import Bay
from sim.world.process import Life, Process
from sim.world.proxy import PROXY
from sim.world.seams import CLUSTER
from sim.world.world import World

_LEDGERS = ClusterPaths(CLUSTER).ledgers
_SLOW_DISK_FACTOR = 100.0


def processes(world: World) -> list[Process]:
    """All live processes, by host."""
    return [world.processes[host] for host in sorted(world.processes)]


def one_process(world: World, rng: Random, *, among: str = "") -> Process | None:
    """A running process with a session, whose host name starts with `among`."""
    able = [
        one
        for one in processes(world)
        if one.life is Life.RUNNING and one.session and one.host.startswith(among)
    ]
    return rng.choice(able) if able else None


def nodes_alive(world: World) -> list[str]:
    """Storage nodes with a live process."""
    return [host for host in sorted(world.processes) if host in world.nodes]


def clients_alive(world: World) -> list[str]:
    """Clients with a live process."""
    return [host for host in sorted(world.processes) if host not in world.nodes]


def writers_alive(world: World) -> list[Process]:
    """Owners with a live process: writers, or the proxies that write for them."""
    kind = PROXY if world.proxies else "writer-"
    return [one for one in processes(world) if one.host.startswith(kind)]


def one_of(rng: Random, hosts: list[str]) -> str | None:
    """One of the hosts; None if there are none."""
    return rng.choice(hosts) if hosts else None


def nodes_harmable(world: World) -> list[str]:
    """Nodes that answer and whose disks may be harmed: too few to lose acknowledged data."""
    return [
        host
        for host in sorted(world.harmable)
        if host in world.cores and not world.nodes[host].is_refusal_due
    ]


def ledgers_now(world: World) -> list[LedgerRecord]:
    """All ledger records, as the metadata store's leader holds them."""
    nodes = world.store.tree.nodes
    return [
        open_document(nodes[path].data, LedgerRecord, path=path)
        for bucket in (sorted(nodes[_LEDGERS].children) if _LEDGERS in nodes else ())
        for name in sorted(nodes[f"{_LEDGERS}/{bucket}"].children)
        for path in (f"{_LEDGERS}/{bucket}/{name}",)
    ]


@contextmanager
def paused(world: World, host: str) -> Iterator[None]:
    """Pause a host's process, if one is running."""
    process = world.processes.get(host)
    if process is None or process.life is not Life.RUNNING:
        yield
        return
    world.pause(host)
    try:
        yield
    finally:
        world.resume(process)


@contextmanager
def slowed(world: World, host: str) -> Iterator[None]:
    """Make syncs and reads of a node's disks take a hundred times as long."""
    with slowed_disks(world.nodes[host].bays):
        yield


@contextmanager
def slowed_disks(bays: list[Bay]) -> Iterator[None]:
    """Make syncs and reads of these disks take a hundred times as long."""
    for bay in bays:
        bay.sync_factor = _SLOW_DISK_FACTOR
    try:
        yield
    finally:
        for bay in bays:
            bay.sync_factor = 1.0


@contextmanager
def receiving_slowly(world: World, host: str, delay_s: float) -> Iterator[None]:
    """Delay what a host receives, and deliver it a little at a time."""
    world.links.receive_delays_s[host] = delay_s
    try:
        yield
    finally:
        world.links.receive_delays_s.pop(host, None)


@contextmanager
def cut_off(world: World, host: str, others: list[str]) -> Iterator[None]:
    """Cut the links between a host and these others."""
    for other in others:
        world.network.cut(host, other)
    try:
        yield
    finally:
        for other in others:
            world.network.mend(host, other)


@contextmanager
def down(world: World, host: str | None, *, power_loss: bool) -> Iterator[str | None]:
    """Kill a host's process, and restart it at the end."""
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
def all_down(world: World, hosts: list[str]) -> Iterator[str | None]:
    """Cut the power of several hosts, and restart them at the end."""
    with ExitStack() as struck:
        for host in hosts:
            struck.enter_context(down(world, host, power_loss=True))
        yield ", ".join(hosts) or None


@contextmanager
def isolated(
    world: World, rng: Random, inside: list[str], *, late_s: float = 0.0
) -> Iterator[None]:
    """Cut hosts off from all others and from metadata; from it so late, by late answers."""
    outside = [host for host in sorted(world.links.region_of) if host not in inside]
    cut = [(one, other) for one in inside for other in outside]
    for one, other in cut:
        world.network.cut(one, other)
    try:
        those = [one for one in processes(world) if one.host in inside]
        with without_metadata(those, rng, late_s=late_s):
            yield
    finally:
        for one, other in cut:
            world.network.mend(one, other)


@contextmanager
def without_metadata(
    those: list[Process], rng: Random, *, late_s: float = 0.0
) -> Iterator[None]:
    """Cut processes off from metadata; they notice sooner or later.

    With late_s, they are heard there that long, and hear all answers at once at its end.
    """
    cut = [one for one in those if one.life is Life.RUNNING and one.session is not None]
    for process in cut:
        assert process.session is not None
        process.session.cut_off(noticed_after_s=rng.choice((0.0, 0.3, 2.0)), late_s=late_s)
    try:
        yield
    finally:
        for process in cut:
            if process.life is Life.RUNNING and process.session is not None:
                process.session.restore()
