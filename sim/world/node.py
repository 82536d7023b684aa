"""A place for storage node processes, one after the other: its disks, and how they are set."""

from random import Random

import attrs

from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from regions.storage.registration import NodeReplacedError
from sim.fakes.failing_disk import Failure
from sim.fakes.memory_disk import MemoryDisk
from sim.world.options import Knobs

_PORT = 4000


@attrs.define(eq=False)
class Bay:
    """Where a node has one of its disks, each of which may be slow, fail or be lost alone."""

    disk: MemoryDisk
    old_copy: MemoryDisk | None = None
    """What the disk held once, before the last start of the node."""
    sync_factor: float = 1.0
    """How many times slower than usual the disk is now."""
    failure: Failure = attrs.field(factory=lambda: Failure(at=None))
    """Which call of the disk that the node's process has fails."""

    def empty(self) -> None:
        """Take an empty disk of the same size and name."""
        self.disk = MemoryDisk(capacity_bytes=self.disk.capacity_bytes, name=self.disk.name)


def bays(count: int) -> list[Bay]:
    """So many, with empty disks."""
    names = [f"disk-{number}" for number in range(1, count + 1)]
    return [Bay(MemoryDisk(name=name)) for name in names]


@attrs.define(eq=False)
class WorldNode:
    """A place for storage node processes: one after the other, on the same disks."""

    node_id: str
    location: str
    region: str
    bays: list[Bay] = attrs.field(factory=lambda: bays(1))
    """Its disks, in the order of its data directories."""
    is_wrong_disk: bool = False
    """Whether a disk is an empty one, or an older copy, that it must not answer on."""
    is_being_replaced: bool = False
    """Whether its disks are lost, and it must not answer until an operator gave them up."""
    disks_given_up: int = 0
    """How often its disks were lost, and replaced by empty ones."""

    def one_bay(self, rng: Random) -> Bay:
        """One of them; nothing is drawn where there is only one."""
        return rng.choice(self.bays) if len(self.bays) > 1 else self.bays[0]

    def empty_disks(self) -> None:
        """Take empty disks: a node is given up whole, with all of its disks."""
        for bay in self.bays:
            bay.empty()
        self.disks_given_up += 1

    def give_up_disks_if_told(self, error: Exception | None) -> None:
        """Take empty disks where the node says that those it began on were given up too.

        That happens when whoever replaces it begins again before it is up for the first time.
        """
        if isinstance(error, NodeReplacedError) and any(bay.disk.names for bay in self.bays):
            self.empty_disks()

    @property
    def is_refusal_due(self) -> bool:
        """Whether it has disks that it should not answer on, or not yet."""
        return self.is_wrong_disk or self.is_being_replaced


def storage_config(node: WorldNode, knobs: Knobs) -> StorageConfig:
    """How a node is set."""
    config = StorageConfig(
        location=node.location,
        listen=Address(node.node_id, _PORT),
        node_id=node.node_id,
        journal_file_bytes=knobs.journal_file_bytes,
    )
    if knobs.is_upkeep_hasty:
        config = _hasty(config)
    if knobs.is_damaged_twice:
        config = _settling(config)
    return _tight(config) if knobs.is_room_tight else config


def _hasty(config: StorageConfig) -> StorageConfig:
    """A node that does in seconds what others do in minutes and days."""
    return attrs.evolve(
        config,
        garbage_interval_s=1.0,
        garbage_grace_s=20.0,  # Longer than a replacement rests between two attempts.
        allocated_expiry_s=10.0,
        compaction_interval_s=1.0,
        compaction_live_share_max=0.9,
        scrub_interval_s=2.0,
    )


ALLOCATED_EXPIRY_S = 10.0
"""How long a ledger that was made ahead and never used keeps doubt from being settled."""


def _settling(config: StorageConfig) -> StorageConfig:
    """A node that soon gives up what was made ahead: while that is there doubt does not end."""
    return attrs.evolve(config, garbage_interval_s=1.0, allocated_expiry_s=ALLOCATED_EXPIRY_S)


def _tight(config: StorageConfig) -> StorageConfig:
    """A node that reaches its bounds with a handful of clients."""
    return attrs.evolve(
        config,
        reads_max=4,
        reads_max_all=8,
        follows_max=1,
        follows_max_all=2,
        read_bytes_max=8 << 10,
        outgoing_bytes_max=4 << 10,
        outgoing_bytes_max_all=16 << 10,
        tail_cache_bytes_max=8 << 10,
    )
