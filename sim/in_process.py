"""A whole cluster in one process: real nodes and clients over in-memory seams.

Nodes and clients run the code that servers run. Below them, everything is in memory: the
network, the disks, the metadata store. Time is trio's clock, which a test may replace by a
mock, and chance comes from one seed. A node can be killed and restarted on the disks it left.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.client.connect import open_log
from geolog.client.log import Log, LogConfig
from geolog.client.proxies.proxies import Via
from geolog.partition.relay_multicast import FindRelays
from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from regions.storage.node import open_storage_node
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import (
    START_OF_TIME_US,
    MemoryMetadata,
    MemoryStore,
    open_memory_store,
)
from sim.fakes.memory_transport import MemoryNetwork
from topology.own_policy import OwnPlacement

_PORT = 4000
_SYNC_S = 0.002
_TICK_S = 0.5
FREE_CHECK_S = 60.0
"""Nothing fills these disks, and frequent checks would slow tests that last for hours."""


@attrs.define(eq=False)
class InProcessNode:
    """A storage node: its location, its disks and its state."""

    node_id: str
    location: str
    disk: MemoryDisk
    further_disks: list[MemoryDisk] = attrs.field(factory=list)
    scope: trio.CancelScope | None = None
    metadata: MemoryMetadata | None = None
    ready: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def region(self) -> str:
        """The node's region."""
        return self.location.split("/")[1]

    @property
    def disks(self) -> list[MemoryDisk]:
        """Its data directories."""
        return [self.disk, *self.further_disks]

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed afterwards."""
        return self.scope is not None


class InProcessCluster:
    """Nodes, network and metadata; opened by `open_in_process_cluster`."""

    def __init__(
        self,
        store: MemoryStore,
        nursery: trio.Nursery,
        rng: random.Random,
        *,
        session_timeout_s: float,
        journal_file_bytes: int,
        directories_per_node: int,
    ) -> None:
        self.store = store
        self.network = MemoryNetwork()
        self.nodes: dict[str, InProcessNode] = {}
        self._nursery = nursery
        self._rng = rng
        self._session_timeout_s = session_timeout_s
        self._journal_file_bytes = journal_file_bytes
        self._directories_per_node = directories_per_node

    def now_us(self) -> int:
        """The wall-clock time."""
        return START_OF_TIME_US + int(trio.current_time() * 1_000_000)

    async def start(self, node_id: str) -> None:
        """Start a node, and wait until it answers."""
        node = self.nodes[node_id]
        assert not node.is_running, f"{node_id} runs"
        node.ready, node.ended = trio.Event(), trio.Event()
        node.scope = trio.CancelScope()
        self._nursery.start_soon(self._run, node, name=f"node {node_id}")
        await node.ready.wait()

    async def add_node(self, node_id: str, location: str) -> None:
        """Add a node with empty disks."""
        disks = [
            _slow(MemoryDisk(name=f"/{node_id}/disk-{number}"))
            for number in range(1, 1 + self._directories_per_node)
        ]
        self.nodes[node_id] = InProcessNode(node_id, location, disks[0], disks[1:])
        await self.start(node_id)

    async def kill(self, node_id: str, *, power_loss: bool = False) -> None:
        """End a node as SIGKILL does; with `power_loss`, unsynced bytes are lost as well."""
        node = self.nodes[node_id]
        assert node.scope is not None, f"{node_id} is not running"
        assert node.metadata is not None
        # Take the disks, and cut the node off, before it can clean up.
        left = [_slow(disk.crash(keep_unsynced=not power_loss)) for disk in node.disks]
        node.metadata.cut_off()
        self.network.vanish(node_id)
        node.scope.cancel(reason="killed")
        await node.ended.wait()
        node.scope = None
        node.disk, *node.further_disks = left

    async def kill_region(self, region: str) -> None:
        """Kill every running node of a region."""
        for node in self.nodes_of(region):
            if node.is_running:
                await self.kill(node.node_id)

    async def restart_region(self, region: str) -> None:
        """Start every node of a region that is not running."""
        for node in self.nodes_of(region):
            if not node.is_running:
                await self.start(node.node_id)

    def nodes_of(self, region: str) -> list[InProcessNode]:
        """The nodes of a region, running or not."""
        return [node for node in self.nodes.values() if node.region == region]

    async def _run(self, node: InProcessNode) -> None:
        config = StorageConfig(
            location=node.location,
            listen=Address(node.node_id, _PORT),
            node_id=node.node_id,
            journal_file_bytes=self._journal_file_bytes,
            free_check_s=FREE_CHECK_S,
        )
        assert node.scope is not None
        with node.scope:
            async with self.store.open_session(self._session_timeout_s) as metadata:
                node.metadata = metadata
                async with open_storage_node(
                    config,
                    transport=self.network.transport(node.node_id),
                    disks=node.disks,
                    metadata=metadata,
                    random_bytes=self._rng.randbytes,
                    now_us=self.now_us,
                ):
                    node.ready.set()
                    await trio.sleep_forever()
        node.ended.set()

    @asynccontextmanager
    async def open_client(
        self,
        region: str | None,
        *,
        host: str | None = None,
        config: LogConfig | None = None,
        on_session: Callable[[MemoryMetadata], None] | None = None,
        off_us: Callable[[], int] = lambda: 0,
        via: Via | None = "direct",
        placement: Sequence[OwnPlacement] = (),
        find_relays: FindRelays | None = None,
        tick_s: float | None = _TICK_S,
    ) -> AsyncIterator[Log]:
        """Open a client on its own host in a region.

        `off_us`: how far that host's wall clock is ahead. `via`, `placement`: as of
        `geolog.connect`. `find_relays`: as of `open_log`. `tick_s`: as the metadata
        store tells it.
        """
        host = host or f"client-in-{region}"
        true_us = self.now_us

        async def ask_tick() -> float | None:
            return tick_s

        async with (
            self.store.open_session(self._session_timeout_s) as metadata,
            open_log(
                metadata=metadata,
                transport=self.network.transport(host),
                cluster="default",
                region=region,
                who=host,
                rng=random.Random(self._rng.getrandbits(64)),
                now_us=lambda: true_us() + off_us(),
                config=config,
                via=via,
                placement=placement,
                find_relays=find_relays,
                ask_tick=ask_tick,
            ) as log,
        ):
            if on_session is not None:
                on_session(metadata)
            yield log


def _slow(disk: MemoryDisk) -> MemoryDisk:
    """Make syncs take a moment, so that there is data to lose."""
    disk.faults.sync_s = _SYNC_S
    return disk


@asynccontextmanager
async def open_in_process_cluster(
    regions: dict[str, int],
    *,
    seed: int = 0,
    session_timeout_s: float = 6.0,
    journal_file_bytes: int = 8 << 20,
    directories_per_node: int = 1,
) -> AsyncIterator[InProcessCluster]:
    """Open a cluster with this many nodes per region, each on its own rack, all up."""
    async with open_memory_store() as store, trio.open_nursery() as nursery:
        cluster = InProcessCluster(
            store,
            nursery,
            random.Random(seed),
            session_timeout_s=session_timeout_s,
            journal_file_bytes=journal_file_bytes,
            directories_per_node=directories_per_node,
        )
        for region, count in regions.items():
            for number in range(1, count + 1):
                await cluster.add_node(f"{region}-{number}", f"/{region}/rack-{number}")
        yield cluster
        nursery.cancel_scope.cancel(reason="cluster closed")
