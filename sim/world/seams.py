"""The seams of a world's processes: metadata sessions, disks, clocks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from regions.storage.disk import Disk
from sim.fakes.failing_disk import FailingDisk, Failure
from sim.fakes.memory_metadata import START_OF_TIME_US, MemoryStore
from sim.world.disk import WorldDisk
from sim.world.metadata import WorldMetadata
from sim.world.network import WorldLinks
from sim.world.node import Bay, WorldNode
from sim.world.options import Options
from sim.world.process import Process
from sim.world.trace import Trace

CLUSTER = "default"

_SLOW_SYNC_CHANCE = 0.02
_METADATA_SPREAD = 2.0
_SYNC_S_MAX = 1.5
"""A sync that began on a slow disk must not stall the node long after the disk recovers."""

_READ_S = 0.0002
"""The base time of a read on a slow disk; multiplied by how slow the disk is."""

_LEDGER_PUT = f"put /geolog/{CLUSTER}/ledgers/"


class Seams:
    """The seams of one world; they add their events to its trace."""

    def __init__(
        self,
        options: Options,
        store: MemoryStore,
        links: WorldLinks,
        trace: Trace,
        *,
        disk_rng: Random,
        metadata_rng: Random,
    ) -> None:
        self.clock_offsets_us: dict[str, int] = {}
        """How far each host's wall clock is off."""
        self.ledger_changed = trio.Event()
        """Set, and replaced by a new event, when a ledger's record in metadata changes."""
        self._options = options
        self._store = store
        self._links = links
        self._trace = trace
        self._disk_rng = disk_rng
        self._metadata_rng = metadata_rng

    def now_us(self, host: str) -> int:
        """The wall-clock time as the host sees it."""
        return self.true_now_us() + self.clock_offsets_us.get(host, 0)

    def true_now_us(self) -> int:
        """The time of a correct clock."""
        return START_OF_TIME_US + int(trio.current_time() * 1_000_000)

    @asynccontextmanager
    async def open_session(self, process: Process) -> AsyncIterator[WorldMetadata]:
        """Open the metadata session of a process, for as long as the block runs."""
        async with self._store.open_session(
            self._options.knobs.session_timeout_s,
            round_trip_s=lambda: self._metadata_round_trip_s(process.region),
        ) as session:
            process.session = session
            yield WorldMetadata(
                session, lambda event, details: self._note(process, event, details)
            )

    def open_disks(self, node: WorldNode, process: Process) -> list[Disk]:
        """The node's disks as its process sees them: operations take time and may fail."""
        are_several = len(node.bays) > 1
        return [
            self._open_disk(bay, process, f"{bay.disk} " if are_several else "")
            for bay in node.bays
        ]

    def _open_disk(self, bay: Bay, process: Process, which: str) -> Disk:
        def note(event: str, details: str) -> None:
            self._note(process, event, f"{which}{details}")

        def read_s() -> float:
            return _READ_S * (bay.sync_factor - 1)

        bay.failure = Failure(at=None, on_failed=lambda what: note("disk-fail", what))
        disk = WorldDisk(bay.disk, note, lambda: self._sync_s(bay), read_s)
        return FailingDisk(disk, bay.failure)

    def _note(self, process: Process, event: str, details: str) -> None:
        if event == "meta-answer" and _LEDGER_PUT in details:
            self.ledger_changed.set()
            self.ledger_changed = trio.Event()
        if process.is_alive:
            self._trace.add(process.host, event, details)

    def _sync_s(self, bay: Bay) -> float:
        usual_s = self._options.links.sync_s * self._disk_rng.uniform(0.5, 1.5)
        if self._disk_rng.random() < _SLOW_SYNC_CHANCE:
            usual_s *= 10
        return min(usual_s * bay.sync_factor, _SYNC_S_MAX)

    def _metadata_round_trip_s(self, region: str) -> float:
        """The time to the leader, in the first region, and from there to a quorum."""
        leader = self._options.shape.regions[0]
        distance_s = max(
            self._links.distance_s(region, leader), self._options.links.latency_s_across * 0.3
        )
        return 2 * distance_s * self._metadata_rng.uniform(1.0, _METADATA_SPREAD)

    @property
    def metadata_round_trip_s_max(self) -> float:
        """The longest time of a metadata operation when all is well."""
        return 2 * self._options.links.latency_s_across * _METADATA_SPREAD
