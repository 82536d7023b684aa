"""A storage node's place in the world: its disks and configuration."""

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
    """A slot for one disk of a node; each disk may be slow, fail or be lost alone."""

    disk: MemoryDisk
    old_copy: MemoryDisk | None = None
    """An earlier state of the disk, from before the node's last start."""
    sync_factor: float = 1.0
    """How many times slower than usual the disk is."""
    failure: Failure = attrs.field(factory=lambda: Failure(at=None))
    """The operation of the disk that fails next."""

    def empty(self) -> None:
        """Swap in an empty disk of the same size and name."""
        self.disk = MemoryDisk(capacity_bytes=self.disk.capacity_bytes, name=self.disk.name)


def bays(count: int) -> list[Bay]:
    """This many bays, with empty disks."""
    names = [f"disk-{number}" for number in range(1, count + 1)]
    return [Bay(MemoryDisk(name=name)) for name in names]


@attrs.define(eq=False)
class WorldNode:
    """The place of a storage node: its processes follow each other on the same disks."""

    node_id: str
    location: str
    region: str
    bays: list[Bay] = attrs.field(factory=lambda: bays(1))
    """The node's disks, in the order of its data directories."""
    is_wrong_disk: bool = False
    """Whether a disk is empty or an older copy; the node must refuse to answer on it."""
    is_being_replaced: bool = False
    """Whether the disks are lost. The node must not answer until an operator gives them up."""
    disks_given_up: int = 0
    """How often the disks were lost and replaced with empty ones."""

    def one_bay(self, rng: Random) -> Bay:
        """One bay at random; draws nothing if there is only one."""
        return rng.choice(self.bays) if len(self.bays) > 1 else self.bays[0]

    def empty_disks(self) -> None:
        """Swap in empty disks. A node is given up whole, with all of its disks."""
        for bay in self.bays:
            bay.empty()
        self.disks_given_up += 1

    def give_up_disks_if_told(self, error: Exception | None) -> None:
        """Swap in empty disks if the node says that its current ones were given up too.

        That happens when an operator restarts the replacement before the node first comes up.
        """
        if isinstance(error, NodeReplacedError) and any(bay.disk.names for bay in self.bays):
            self.empty_disks()

    @property
    def is_refusal_due(self) -> bool:
        """Whether the node has disks on which it should not answer, or not yet."""
        return self.is_wrong_disk or self.is_being_replaced


def storage_config(node: WorldNode, knobs: Knobs) -> StorageConfig:
    """The node's configuration."""
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
    """Do upkeep in seconds that usually takes minutes or days."""
    return attrs.evolve(
        config,
        garbage_interval_s=1.0,
        garbage_grace_s=20.0,  # Longer than a replacement waits between two attempts.
        allocated_expiry_s=10.0,
        compaction_interval_s=1.0,
        compaction_live_share_max=0.9,
        scrub_interval_s=2.0,
    )


ALLOCATED_EXPIRY_S = 10.0
"""How long a ledger that was allocated ahead and never used keeps doubt from being settled."""


def _settling(config: StorageConfig) -> StorageConfig:
    """Soon give up ledgers that were allocated ahead: until then doubt does not end."""
    return attrs.evolve(config, garbage_interval_s=1.0, allocated_expiry_s=ALLOCATED_EXPIRY_S)


def _tight(config: StorageConfig) -> StorageConfig:
    """Set bounds that a handful of clients reach."""
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
