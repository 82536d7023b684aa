"""A storage node in this process over recorded directories that can be cut off and restarted.

The directories, the metadata store and the network outlive each of its lives.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import attrs
import trio

from regions.storage.config import StorageConfig
from regions.storage.disk import Disk
from regions.storage.node import StorageNode, open_storage_node
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore
from sim.fakes.memory_transport import MemoryNetwork
from sim.fakes.recorded_directory import DirectoryPlace, RecordedDirectory
from sim.fakes.recording_disk import CutOffError, ProcessLife, open_recording_disk
from topology.errors import GeologError

WrapDisk = Callable[[Disk], Disk]
"""Wraps a node's disk, e.g. with a planted fault in a test of a drill."""


def as_it_is(disk: Disk) -> Disk:
    """Wrap nothing."""
    return disk


@attrs.frozen(kw_only=True)
class NodeWorld:
    """Environment of the nodes."""

    store: MemoryStore
    network: MemoryNetwork
    rng: Random
    wrap_disk: WrapDisk = as_it_is


class NodeLife:
    """One process of a node. `RecordedNode.run` runs it; others wait for it and cut it off."""

    def __init__(self, *, cut_off_at: int | None = None, sync_s: float = 0.0) -> None:
        self.of_disks = ProcessLife(cut_off_at=cut_off_at, sync_s=sync_s)
        self.scope = trio.CancelScope()
        self.begun = trio.Event()
        """Set when the node answers, or when it has ended before that."""
        self.node: StorageNode | None = None
        """The running node; None if it never answered."""

    def kill(self) -> None:
        """End it abruptly."""
        self.of_disks.cut_off()
        self.scope.cancel(reason="killed")

    def end(self) -> None:
        """Ask it to shut down cleanly."""
        self.scope.cancel(reason="asked to end")


class RecordedNode:
    """A node and its disks in their current state."""

    def __init__(
        self, config: StorageConfig, world: NodeWorld, places: Sequence[DirectoryPlace]
    ) -> None:
        """Make a node with a data directory at each of these places."""
        self.config = config
        self._world = world
        self._losses_count = 0
        self._disks = [RecordedDirectory(place) for place in places]
        self.problems: list[str] = []
        """Errors that ended lives that were not cut off, and damage that a start found."""

    def __repr__(self) -> str:
        return f"RecordedNode({self.config.node_id}, {self._losses_count} power losses)"

    def lose_power(self) -> None:
        """Continue with the data that survives on the disks. No life may be running."""
        self._losses_count += 1
        self._disks = [each.after_power_loss(self._world.rng) for each in self._disks]

    async def run(self, life: NodeLife) -> None:
        """Run a life until it is killed or asked to end."""
        try:
            with life.scope:
                async with self._open(life.of_disks) as node:
                    self.problems += _damage_found(node)
                    life.node = node
                    life.begun.set()
                    await trio.sleep_forever()
        except* CutOffError:
            pass
        except* GeologError as group:
            if not life.of_disks.is_cut_off:  # A cut also ends the metadata session.
                self.problems.append(f"{self.config.node_id} ended: {group.exceptions[0]!r}")
        finally:
            life.begun.set()

    @asynccontextmanager
    async def _open(self, of_disks: ProcessLife) -> AsyncIterator[StorageNode]:
        world = self._world
        async with AsyncExitStack() as stack:
            disks = [
                world.wrap_disk(
                    await stack.enter_async_context(open_recording_disk(each, of_disks))
                )
                for each in self._disks
            ]
            metadata = await stack.enter_async_context(world.store.open_session())
            tell_others, of_disks.on_cut_off = of_disks.on_cut_off, None

            def on_cut_off() -> None:
                end_session(metadata)
                if tell_others is not None:
                    tell_others()

            of_disks.on_cut_off = on_cut_off
            stack.callback(of_disks.forget_who_asked)
            yield await stack.enter_async_context(
                open_storage_node(
                    self.config,
                    transport=world.network.transport(self.config.listen.host),
                    disks=disks,
                    metadata=metadata,
                    random_bytes=world.rng.randbytes,
                )
            )


def _damage_found(node: StorageNode) -> list[str]:
    """Damage that the start found, although no disk was damaged: it puts ledgers in doubt."""
    return [
        f"{node.node_id} found damage in {store.disk}: {damage}"
        for store in node.service.stores
        for damage in store.ledgers.damaged
    ]


def end_session(metadata: MemoryMetadata) -> None:
    """End a session as a dead process does: tell the store nothing, fail waiting requests."""
    metadata.cut_off()
    metadata.leave()
