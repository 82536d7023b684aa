"""Everything that operator tools need of a cluster: its metadata, its nodes, a location."""

import random
from collections.abc import Callable

import attrs

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_catalog import LedgerCatalog
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairQueue
from geolog.metadata.seam import Metadata


@attrs.frozen(kw_only=True)
class ClusterAccess:
    """One cluster, for tools that manage its nodes and ledgers; `Log.access` gives it."""

    cluster: str
    region: str | None
    metadata: Metadata
    replicas: Replicas
    ledgers: LedgerMetadata
    partitions: PartitionMetadata
    reader: LedgerReader
    recovery: RecoveryConfig
    rng: random.Random
    now_us: Callable[[], int]

    @property
    def pool(self) -> NodePool:
        """The connections to the cluster's nodes."""
        return self.replicas.pool

    @property
    def paths(self) -> ClusterPaths:
        """The paths of this cluster in metadata."""
        return ClusterPaths(self.cluster)

    @property
    def catalog(self) -> LedgerCatalog:
        """All ledgers of the cluster."""
        return LedgerCatalog(self.metadata, self.paths)

    @property
    def repair_queue(self) -> RepairQueue:
        """The ledgers that are waiting for copies."""
        return RepairQueue(self.metadata, self.paths, now_us=self.now_us)
