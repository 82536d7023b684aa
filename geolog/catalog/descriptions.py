"""What the log tells of itself: streams, segments, nodes and health, as values to print."""

import enum

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
    survives_region: bool | None = None
    """When it was made: whether it survives losing any one region; else None."""
    survives_region_why_not: str = ""
    """Why it does not."""


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
    """writable, readonly or down; replaced, if its disk was given up and its copies are not all
    with others yet."""


@attrs.define(kw_only=True)
class PlacementHealth:
    """Adherence of the fragments that were judged, as they are placed."""

    ledgers: int = 0
    """That were judged."""
    is_sample: bool = False
    """Whether there are more: the newest were judged, and others at random."""
    strict: int = 0
    soft: int = 0
    fail: int = 0
    disks_given_up: int = 0
    """Fragments that still name a disk that was given up."""
    promises_broken: int = 0
    """Fragments that are strict, and do not survive what their stream was promised to."""
    repairable: int = 0
    """Closed fragments that `geolog placement repair` can make better now."""
    streams: dict[str, int] = attrs.field(factory=dict)
    """Streams with fragments that can be made better, or fail, and how many: the worst ten."""
    streams_count: int = 0
    """How many such streams there are in all."""


class HealthState(enum.Enum):
    """How a cluster is."""

    HEALTHY = "healthy"
    """Every stream works, and keeps what it was promised through its next loss."""
    DEGRADED = "degraded"
    """Everything works; a promise would not outlive its next loss, or copies may be missing."""
    UNHEALTHY = "unhealthy"
    """Something does not work now."""


@attrs.frozen(kw_only=True)
class HealthReport:
    """Whether the cluster is as it should be, and if not, why."""

    state: HealthState
    is_healthy: bool
    """Whether the state is healthy."""
    reasons: list[str]
    """Why it is not, gravest first: node or stream, what it cannot take, why, what mends it."""
    regions_spare: int
    """How many more regions can be lost with an ack set left of each fragment, and room for
    new ledgers."""
    regions_spare_set_by: str
    """What would not outlive the loss of one more."""
    nodes_live: int
    nodes_known: int
    nodes_in_doubt: dict[str, int]
    """Nodes that damage may have taken copies from, and of how many ledgers (of those judged).
    """
    repair_queue: int
    """Ledgers that may lack copies, or hold damaged ones, as somebody found."""
    regions: dict[str, int]
    """Nodes that are up, by region."""
    streams: int
    placement: PlacementHealth
    """How fragments lie, closed and open ones."""
    metadata: str
    """State of the session with the metadata store."""
