"""What the log tells of itself: streams, segments, nodes and health, as values to print."""

import attrs


@attrs.frozen(kw_only=True)
class PartitionDescription:
    """Who writes a partition, and how far it reaches."""

    partition: int
    owner: str | None
    owner_epoch: int
    owner_is_alive: bool
    segments_count: int
    last_segment: int | None
    """Number of the last segment; None while there is none."""
    first_sequence: int
    """Records before this sequence were trimmed."""
    completed_sequence: int
    """Records before this sequence lie in completed segments."""


@attrs.frozen(kw_only=True)
class StreamDescription:
    """A stream's settings, and its partitions."""

    name: str
    mode: str
    partitions: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int
    durability: str
    policy: str
    """The policy that places its ledgers."""
    survive: str | None
    """What it was asked to outlive; None if its quorums were given."""
    segment_bytes: int
    segment_age_s: float
    retention_s: float | None
    """How long records are kept at least; None: for ever."""
    retention_bytes: int | None
    """How many bytes each partition keeps at least; None: all."""
    writer_retention_s: float
    is_sealed: bool
    created_us: int
    partition_list: list[PartitionDescription]
    explanation: list[str] = attrs.field(factory=list)
    """When it was made: what was chosen, why, and what it costs, a sentence each."""


@attrs.frozen(kw_only=True)
class SegmentDescription:
    """One log segment and the ledger under it."""

    partition: int
    segment: int
    ledger: int
    state: str
    epoch: int
    owner_epoch: int
    first_sequence: int
    last_sequence: int | None
    last_entry: int | None
    size_bytes: int | None
    ensemble: list[str]
    """Node ids in ring order."""
    regions: list[str]
    adherence: str


@attrs.frozen(kw_only=True)
class NodeDescription:
    """One storage node."""

    node_id: str
    instance: str
    address: str
    location: str
    region: str
    rack: str
    state: str
    """writable, readonly or down."""


@attrs.frozen(kw_only=True)
class HealthReport:
    """Whether the cluster is as it should be, and if not, why."""

    is_healthy: bool
    reasons: list[str]
    regions_spare: int
    """How many more regions can be lost with every stream still readable and writable."""
    nodes_live: int
    nodes_known: int
    regions: dict[str, int]
    """Nodes that are up, by region."""
    streams: int
    metadata: str
    """State of the session with the metadata store."""
