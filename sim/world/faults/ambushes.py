"""Faults that wait for the moments at which protocols are most vulnerable.

Most of a history is calm, and that is where blind faults strike. An ambush waits for a trace
event that shows something half done: a ledger is being taken over, an append was just answered,
an entry has reached one member and not the others, bytes are in flight.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from random import Random

import attrs
import trio

from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import NO_ENTRY, EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.world.faults.copy_ambushes import ambush_copy
from sim.world.faults.disk_ambushes import ambush_create
from sim.world.faults.hand_over_ambushes import ambush_hand_over
from sim.world.faults.harm import harm_entry
from sim.world.faults.moved_ambushes import ambush_moved
from sim.world.faults.owner_ambushes import ambush_ownership
from sim.world.faults.reader_ambushes import (
    ambush_answers,
    ambush_succession,
    ambush_walk,
)
from sim.world.faults.rot_ambushes import ambush_fence_record
from sim.world.faults.targets import (
    clients_alive,
    cut_off,
    down,
    ledgers_now,
    nodes_harmable,
    one_of,
    paused,
    receiving_slowly,
    slowed,
    without_metadata,
    writers_alive,
)
from sim.world.process import Life
from sim.world.seams import CLUSTER
from sim.world.world import World

Strike = Callable[[World, Random, str, str], AbstractAsyncContextManager[str | None]]
"""Gets the process of the event and its details; yields None if this is not the moment."""

_LEDGER_PUT = f"put {ClusterPaths(CLUSTER).ledgers}/"
_CHANGE_S_MAX = 3.0
_FENCE_S_MAX = 1.0
_TAKEOVER_S_MAX = 5.0
_MEMBER_CHANCE = 0.5
_ROT_CHANCE = 0.5
_CUT_CHANCE = 0.3
_ANSWER_S_MAX = 1.0
_LATE_S = (0.001, 0.02, 0.1)
_WAYS = ("reset", "slow", "paused", "killed", "restarted", "restarted", "without power")


@attrs.frozen
class Ambush:
    """An event to wait for, and the strike that follows it."""

    event: str
    strike: Strike


@asynccontextmanager
async def ambush_takeover(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """During a takeover, members are late or gone; at the end the old writer wakes up."""
    record = _newest(world, LedgerState.IN_RECOVERY)
    if record is None or not details.startswith(_LEDGER_PUT) or process in world.nodes:
        yield None
        return
    with ExitStack() as struck:
        words = [f"{process} takes ledger {record.ledger}"]
        for writer in writers_alive(world):
            if writer.host != process and rng.random() < _MEMBER_CHANCE:
                struck.enter_context(paused(world, writer.host))
                words.append(f"{writer.host} paused")
        words += _strike_members(world, rng, struck, record, process)
        yield "; ".join(words)


@asynccontextmanager
async def ambush_fence(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A member has just answered that a ledger is fenced: it loses power, maybe others too."""
    record = _newest(world, LedgerState.IN_RECOVERY)
    if record is None or not details.startswith(_LEDGER_PUT) or process in world.nodes:
        yield None
        return
    dark: list[str] = []
    with ExitStack() as struck:
        with trio.move_on_after(_FENCE_S_MAX):
            for _ in range(rng.choice((1, 1, 2))):
                host = await _answer_of_fence(world, record, process)
                struck.enter_context(down(world, host, power_loss=True))
                dark.append(host)
        yield f"{', '.join(dark)}, of ledger {record.ledger}" if dark else None


async def _answer_of_fence(world: World, record: LedgerRecord, process: str) -> str:
    """Wait until a fenced member sends to the process that takes the ledger over."""
    members = {member.node_id for member in record.fragments[-1].ensemble}
    while True:
        host, details = await world.trace.wait("send")
        _, peer, *_ = details.split()
        if host not in members or peer != process or host not in world.cores:
            continue
        store = world.cores[host].service.store_of(record.ledger)
        replica = store.ledgers.replica_of(record.ledger)
        if replica.is_fenced and replica.epoch_highest >= record.epoch:
            return host


@asynccontextmanager
async def ambush_rest(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """All of a ledger is acknowledged: its writer pauses, and others reach few members."""
    _, writer, *_ = details.split()
    others = [one.host for one in writers_alive(world) if one.host != writer]
    if process not in world.cores or not writer.startswith("writer-") or not others:
        yield None
        return
    record = _newest(world, LedgerState.OPEN)
    if record is None or not _is_at_rest(world, record):
        yield None
        return
    members = [member.node_id for member in record.fragments[-1].ensemble]
    away = rng.sample(members, max(1, len(members) - rng.choice((1, 1, 2))))
    with ExitStack() as struck:
        struck.enter_context(paused(world, writer))
        for other in others:
            struck.enter_context(cut_off(world, other, away))
        with trio.move_on_after(_TAKEOVER_S_MAX):
            await _put_of_ledger(world, "meta-answer", others)
        yield f"{writer} paused, of ledger {record.ledger}; cut off: {', '.join(away)}"


def _is_at_rest(world: World, record: LedgerRecord) -> bool:
    """Whether all members know that all their entries are acknowledged."""
    cores = [world.cores.get(member.node_id) for member in record.fragments[-1].ensemble]
    stores = [core.service.store_of(record.ledger) for core in cores if core is not None]
    replicas = [store.ledgers.replica_of(record.ledger) for store in stores]
    highest = max((one.entry_highest for one in replicas), default=NO_ENTRY)
    return highest >= 0 and all(one.lac == highest for one in replicas)


@asynccontextmanager
async def ambush_append(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """An append was just answered: its writer is gone, and members are late or gone."""
    record = _newest(world, LedgerState.OPEN)
    writers = [one for one in writers_alive(world) if one.host == process]
    if record is None or not writers or not details.startswith("append"):
        yield None
        return
    [writer] = writers
    how = rng.choice(("killed", "paused", "cut off"))
    with ExitStack() as struck:
        if how == "killed":
            struck.enter_context(down(world, process, power_loss=False))
        elif how == "paused":
            struck.enter_context(paused(world, process))
        else:
            struck.enter_context(without_metadata([writer], rng))
            struck.enter_context(cut_off(world, process, sorted(world.nodes)))
        words = [f"{process} is {how}"]
        words += _strike_members(world, rng, struck, record, process)
        yield "; ".join(words)


@asynccontextmanager
async def ambush_add(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A writer hears from the first member that has an entry: it goes, the others are late."""
    _, first, *_ = details.split()
    record = _newest(world, LedgerState.OPEN)
    if record is None or process in world.nodes or first not in world.processes:
        yield None
        return
    reached = _highest_entries(world, record)
    behind = [host for host in sorted(reached) if reached[host] < reached.get(first, -1)]
    if not behind:
        yield None
        return
    with down(world, first, power_loss=rng.random() < 0.5):
        with ExitStack() as late:
            for host in behind:
                how = (
                    paused(world, host)
                    if rng.random() < 0.5
                    else cut_off(world, process, [host])
                )
                late.enter_context(how)
            with trio.move_on_after(_CHANGE_S_MAX):
                await _put_of_ledger(world, "meta-ask", [process])  # For another ensemble.
        yield f"{process} has heard from {first}, which is gone; late: {', '.join(behind)}"


@asynccontextmanager
async def ambush_member(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """While a ledger is written, a member ends, and the writer has to do without it."""
    record = _newest(world, LedgerState.OPEN)
    if record is None or not _is_append_of(world, process, details):
        yield None
        return
    members = [member.node_id for member in record.fragments[-1].ensemble]
    alive = [host for host in members if host in world.processes]
    with down(world, one_of(rng, alive), power_loss=False) as host:
        yield host and f"{host}, of ledger {record.ledger}"


@asynccontextmanager
async def ambush_lack(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A member lacks an entry that was answered: the writer goes, the holders are late."""
    record = _newest(world, LedgerState.OPEN)
    others = [one.host for one in writers_alive(world) if one.host != process]
    if record is None or not others or not _is_append_of(world, process, details):
        yield None
        return
    quorum = record.quorum
    members = [member.node_id for member in record.fragments[-1].ensemble]
    with ExitStack() as struck:
        late = rng.sample(members, quorum.write_quorum - quorum.ack_quorum)
        with cut_off(world, process, late):
            with trio.move_on_after(_ANSWER_S_MAX):
                await _append_answered(world, process)
            having, behind = _who_has_the_last(world, record)
            if behind and process in world.processes:
                # Bytes in flight to those behind are lost with it.
                struck.enter_context(down(world, process, power_loss=False))
        if not behind:
            yield None
            return
        for host in having:
            struck.enter_context(receiving_slowly(world, host, rng.choice(_LATE_S)))
        with trio.move_on_after(_TAKEOVER_S_MAX):
            await _put_of_ledger(world, "meta-answer", others)
        yield f"{process} is gone, of ledger {record.ledger}; behind: {', '.join(behind)}"


def _is_append_of(world: World, process: str, details: str) -> bool:
    """Whether this is a writer's append, and the writer is still there."""
    return process in clients_alive(world) and details.startswith("append")


async def _append_answered(world: World, process: str) -> None:
    """Wait until an append of this writer is answered."""
    while True:
        host, details = await world.trace.wait("done")
        if host == process and details.startswith("append"):
            return


def _who_has_the_last(world: World, record: LedgerRecord) -> tuple[list[str], list[str]]:
    """Members that have the last acknowledged entry, and those that have not received it."""
    fragment = record.fragments[-1]
    rule = fragment.rule(record.quorum)
    hosts = [member.node_id for member in fragment.ensemble]
    synced = _highest_entries(world, record)
    received = _highest_entries(world, record, are_synced=False)
    for entry in range(max(synced.values(), default=NO_ENTRY), fragment.first_entry - 1, -1):
        slots = sorted(rule.write_set(EntryId(entry)))
        having = [slot for slot in slots if synced.get(hosts[slot], NO_ENTRY) >= entry]
        if rule.is_ack(EntryId(entry), sum(1 << slot for slot in having)):
            behind = [slot for slot in slots if received.get(hosts[slot], entry) < entry]
            return [hosts[slot] for slot in having], [hosts[slot] for slot in behind]
    return [], []


async def _put_of_ledger(world: World, event: str, those: Sequence[str]) -> None:
    """Wait for this event of one of these processes changing a ledger's record."""
    while True:
        process, what = await world.trace.wait(event)
        if process in those and what.startswith(_LEDGER_PUT):
            return


@asynccontextmanager
async def ambush_send(
    world: World, rng: Random, process: str, details: str
) -> AsyncIterator[str | None]:
    """A client has just sent to a node: the connection breaks, at any byte in flight."""
    number, peer, *_ = details.split()
    streams = [
        stream
        for stream in world.network.streams_of(process)
        if stream.connection == int(number) and stream.under_way_bytes
    ]
    if process not in clients_alive(world) or peer not in world.nodes or not streams:
        yield None
        return
    [stream] = streams
    kept_bytes = rng.choice((0, rng.randint(0, stream.under_way_bytes)))
    stream.break_after(kept_bytes)
    yield f"{stream.connection} {stream.host} {stream.peer_host} {kept_bytes}"


def _newest(world: World, state: LedgerState) -> LedgerRecord | None:
    """The newest ledger of the stream in this state."""
    those = [one for one in ledgers_now(world) if one.state is state and one.segment]
    return max(those, key=lambda one: one.ledger, default=None)


def _highest_entries(
    world: World, record: LedgerRecord, *, are_synced: bool = True
) -> dict[str, int]:
    """The highest entry that each member of the last fragment has, by host."""
    reached: dict[str, int] = {}
    for member in record.fragments[-1].ensemble:
        core = world.cores.get(member.node_id)
        process = world.processes.get(member.node_id)
        if core is None or core.instance != member.instance or process is None:
            continue
        if process.life is not Life.RUNNING:
            continue
        store = core.service.store_of(record.ledger)
        highest = store.ledgers.replica_of(record.ledger).entry_highest
        is_in_flight = are_synced and store.entries.is_in_flight(record.ledger, highest)
        reached[member.node_id] = highest - 1 if is_in_flight else highest
    return reached


def _strike_members(
    world: World, rng: Random, struck: ExitStack, record: LedgerRecord, process: str
) -> list[str]:
    """Strike some members of the last fragment, each in its own way, or cut them off."""
    words: list[str] = []
    members = [member.node_id for member in record.fragments[-1].ensemble]
    if rng.random() < _CUT_CHANCE:
        away = rng.sample(members, rng.randint(1, max(1, len(members) - 1)))
        struck.enter_context(cut_off(world, process, away))
        return [f"cut off: {', '.join(away)}"]
    for host in members:
        if host not in world.cores or rng.random() > _MEMBER_CHANCE:
            continue
        how = rng.choice(_WAYS)
        if how == "reset":
            world.network.reset(process, host)
        elif how == "paused":
            struck.enter_context(paused(world, host))
        elif how == "slow":
            struck.enter_context(slowed(world, host))
        elif how == "restarted":
            rotten = _rot(world, rng, record.ledger, host)
            words += [rotten] if rotten else []
            world.kill(host)
            world.restart(host)
        else:
            struck.enter_context(down(world, host, power_loss=how == "without power"))
        words.append(f"{host} {how}")
    return words


def _rot(world: World, rng: Random, ledger: LedgerId, host: str) -> str | None:
    """Harm the node's copies near the ledger's end, if its disk may be harmed."""
    if host not in nodes_harmable(world) or rng.random() > _ROT_CHANCE:
        return None
    core = world.cores[host]
    store = core.service.store_of(ledger)
    bay = world.nodes[host].bays[core.service.stores.index(store)]
    harmed = harm_entry(bay.disk, store, ledger, rng)
    if harmed is not None:
        world.harmed.add(core.instance)
    return harmed


AMBUSHES: dict[str, Ambush] = {
    "ambush-takeover": Ambush("meta-answer", ambush_takeover),
    "ambush-append": Ambush("done", ambush_append),
    "ambush-add": Ambush("deliver", ambush_add),
    "ambush-send": Ambush("send", ambush_send),
    "ambush-rest": Ambush("deliver", ambush_rest),
    "ambush-fence": Ambush("meta-answer", ambush_fence),
    "ambush-fence-record": Ambush("meta-answer", ambush_fence_record),
    "ambush-succession": Ambush("meta-ask", ambush_succession),
    "ambush-walk": Ambush("call", ambush_walk),
    "ambush-lack": Ambush("done", ambush_lack),
    "ambush-member": Ambush("done", ambush_member),
    "ambush-copy": Ambush("send", ambush_copy),
    "ambush-answers": Ambush("send", ambush_answers),
    "ambush-create": Ambush("disk-rename", ambush_create),
    "ambush-ownership": Ambush("meta-answer", ambush_ownership),
    "ambush-moved": Ambush("done", ambush_moved),
    "ambush-hand-over": Ambush("call", ambush_hand_over),
}
"""Every ambush, by the name that options and trace use."""
