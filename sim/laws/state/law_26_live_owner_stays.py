"""Law 26: no reader recovers from an owner whose session has been connected for a time-out."""

from collections.abc import Iterator

import attrs
import trio

from geolog.metadata.seam import SessionState
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.ids import Epoch, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import OwnerRecord
from sim.laws.state.seen import Look
from sim.world.process import Life, Process
from sim.world.world import World
from topology.errors import FencedError

_ROUND_TRIPS = 3
"""The time from a reader's last look for the owner until it takes over the ledger's record."""

_LOOKS_S = 0.2
"""How much later the law may notice a takeover than a connected session."""


@attrs.frozen
class _Owned:
    """A ledger that its owner writes."""

    owner: OwnerRecord
    ledger: LedgerRecord


@attrs.define
class LiveOwnerStays:
    """Keeps since when each process has been connected, and the writer of each ledger.

    A takeover, a seal and a deletion raise the epoch of the owner first. So a ledger that is
    taken over while its owner remains the owner was taken by a reader.
    """

    _connected: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """By process: its session, and since when it has been able to speak in it."""
    _owned: dict[int, _Owned] = attrs.field(factory=dict)
    """By partition, as of the last look."""
    _home: str | None = None
    """The home then: another one has owners of its own."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Find ledgers that were taken from the processes that write them."""
        self._connected = self._now_connected(now.world)
        for partition, before in self._owned.items() if now.home == self._home else ():
            yield from self._judge(now, partition, before)
        self._home = now.home
        self._owned = dict(_now_owned(now))

    def _judge(self, now: Look, partition: int, before: _Owned) -> Iterator[str]:
        owner = now.owners.get(partition)
        ledger = now.ledgers.get(before.ledger.ledger)
        if owner is None or ledger is None or ledger.epoch == before.ledger.epoch:
            return
        if owner.epoch != before.owner.epoch:
            return
        if not owner.presence and (partition, owner.epoch) not in _fenced_owners(now):
            return  # It left first. A fenced owner leaves too, but afterwards.
        session, since_s = self._connected.get(owner.owner, (0, trio.current_time()))
        connected_s = trio.current_time() - since_s
        round_trips_s = _ROUND_TRIPS * now.world.seams.metadata_round_trip_s_max
        timeout_s = now.world.options.knobs.session_timeout_s
        if connected_s > timeout_s + round_trips_s + _LOOKS_S:
            yield (
                f"a reader recovered ledger {ledger.ledger} of partition {partition}, though"
                f" its owner {owner.owner} has been connected for {connected_s:.1f} s, in"
                f" session {session}"
            )

    def _now_connected(self, world: World) -> dict[str, tuple[int, float]]:
        connected = {}
        for process in world.processes.values():
            if not _is_connected(world, process):
                continue
            assert process.session is not None
            session = int(process.session.session_id)
            known = self._connected.get(process.key)
            is_same = known is not None and known[0] == session
            since_s = known[1] if known is not None and is_same else trio.current_time()
            connected[process.key] = session, since_s
        return connected


def _is_connected(world: World, process: Process) -> bool:
    session = process.session
    return (
        process.life is Life.RUNNING
        and session is not None
        and session.session_state is SessionState.CONNECTED
        and not session.is_cut
        and world.store.is_alive(session.session_id)
    )


def _now_owned(now: Look) -> Iterator[tuple[int, _Owned]]:
    """By partition: the owner that writes its last ledger, and that ledger."""
    failed = _failed_owners(now)
    for partition, owner in now.owners.items():
        segments = now.lists.get(partition)
        if not segments or not owner.presence or (partition, owner.epoch) in failed:
            continue
        last = segments[max(segments)]
        ledger: LedgerRecord | None = now.ledgers.get(LedgerId(last.ledger))
        is_open = ledger is not None and ledger.state is LedgerState.OPEN
        if ledger is not None and is_open and last.owner_epoch == owner.epoch:
            yield partition, _Owned(owner, ledger)


def _failed_owners(now: Look) -> set[tuple[int, Epoch]]:
    """Owners that write nothing more: they are about to say that they have left."""
    return {
        (owner.name.number, owner.epoch) for owner in _owners(now) if owner.failure is not None
    }


def _fenced_owners(now: Look) -> set[tuple[int, Epoch]]:
    """Owners that ended because others took their ledgers."""
    return {
        (owner.name.number, owner.epoch)
        for owner in _owners(now)
        if isinstance(owner.failure, FencedError)
    }


def _owners(now: Look) -> Iterator[PartitionWriter]:
    """The owners that write for applications of their own process."""
    for writer in now.history.writers.values():
        for lane in writer.lanes:
            sink: object = lane.sink
            if isinstance(sink, PartitionWriter):
                yield sink
