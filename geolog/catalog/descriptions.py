"""Descriptions of streams, segments, nodes and health, as values to print."""

import enum

import attrs


@attrs.frozen(kw_only=True)
class PartitionDescription:
    """A partition's owner, and how far the partition reaches."""

    partition: int
    owner: str | None
    owner_epoch: int
    owner_is_alive: bool
    segments_count: int
    last_segment: int | None
    """Number of the last segment; None if there is none."""
    first_sequence: int
    """Sequence of the first record that was not trimmed."""
    completed_sequence: int
    """Sequence of the first record after all completed segments."""
    completed_bytes: int
    """Bytes of the batches in its completed segments, without those that were removed."""


@attrs.frozen(kw_only=True)
class MirrorDescription:
    """The copy of a partition in another region, and how far it reaches."""

    partition: int
    region: str
    owner: str | None
    owner_epoch: int
    owner_is_alive: bool
    rows_count: int
    """Ledgers in its list."""
    first_sequence: int
    """Sequence of the first record that was not trimmed."""
    completed_sequence: int
    """Sequence of the first record after all completed ledgers."""
    evicted: str | None = None
    """The last run of sequences, `FIRST-LAST`, that its home dropped before it had them."""


@attrs.frozen(kw_only=True)
class StreamDescription:
    """A stream's settings, and its partitions."""

    name: str
    mode: str
    home: str | None
    """The region of a `regional` stream's copies and owners; None for a `global` one."""
    relay_to: list[str]
    """The regions that mirror it."""
    relay_evict_bytes: int | None
    """Trimmed bytes of each partition that are kept for mirrors that lack them; None: all."""
    rpo_max_s: float | None
    """Appends are refused while mirrors lack records older than this; None: never."""
    rpo_max_bytes: int | None
    """Appends are refused while mirrors lack more than this of a partition; None: never."""
    rpo_targets: list[str]
    """The mirrors that count: `all`, `any`, or names of regions."""
    on_isolation: str
    """`stop` if its home answers no appends while it is cut off from metadata; `continue`."""
    partitions: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int
    durability: str
    policy: str
    """The policy that places its ledgers."""
    survive: str | None
    """The loss that it must survive; None if its quorums were given."""
    segment_bytes: int
    segment_age_s: float
    retention_s: float | None
    """How long records are kept at least; None means for ever."""
    retention_bytes: int | None
    """How many bytes each partition keeps at least; None means all."""
    writer_retention_s: float
    is_sealed: bool
    created_us: int
    partition_list: list[PartitionDescription]
    mirror_list: list[MirrorDescription] = attrs.field(factory=list)
    """The mirrors in other regions."""
    explanation: list[str] = attrs.field(factory=list)
    """Set at creation: what was chosen, why, and what it costs, one sentence each."""
    survives_region: bool | None = None
    """Set at creation: whether it survives losing any one region; else None."""
    survives_region_why_not: str = ""
    """The reason why it does not."""


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
    """writable, readonly or down; replaced, if its disk was given up, no other has its id, and
    not all copies of the disk are with other nodes yet."""
    past_disks: list[str] = attrs.field(factory=list)
    """Instances of this node whose disks were given up, while copies are still to be moved."""


@attrs.define(kw_only=True)
class PlacementHealth:
    """Adherence of the fragments that were judged."""

    ledgers: int = 0
    """Ledgers that were judged."""
    is_sample: bool = False
    """Whether there are more ledgers: the newest were judged, and others at random."""
    strict: int = 0
    soft: int = 0
    fail: int = 0
    disks_given_up: int = 0
    """Fragments that still name a disk that was given up."""
    promises_broken: int = 0
    """Fragments that are strict, but do not keep their stream's promise."""
    repairable: int = 0
    """Closed fragments that `geolog placement repair` can improve now."""
    streams: dict[str, int] = attrs.field(factory=dict)
    """Fragments that fail or can be improved, by stream: the ten worst streams."""
    streams_count: int = 0
    """How many such streams there are in total."""


class HealthState(enum.Enum):
    """The state of a cluster."""

    HEALTHY = "healthy"
    """Every stream works, and the next loss breaks no promise."""
    DEGRADED = "degraded"
    """Everything works, but the next loss would break a promise, or copies may be missing."""
    UNHEALTHY = "unhealthy"
    """Something does not work now."""


@attrs.frozen(kw_only=True)
class HealthReport:
    """Whether the cluster is healthy, and if not, why."""

    state: HealthState
    is_healthy: bool
    """Whether `state` is healthy."""
    reasons: list[str]
    """Why it is not, worst first: the node or stream, what it risks, why, and the remedy."""
    regions_spare: int
    """How many more regions can be lost while each fragment keeps an ack set, and new ledgers
    can be placed."""
    regions_spare_set_by: str
    """The stream or service that the loss of one more region would stop."""
    nodes_live: int
    nodes_known: int
    nodes_in_doubt: dict[str, int]
    """Nodes from which damage may have taken copies, and of how many of the judged ledgers."""
    repair_queue: int
    """Ledgers that were reported to lack copies, or to hold damaged ones."""
    regions: dict[str, int]
    """Number of nodes that are up, by region."""
    streams: int
    """Number of streams, whatever partitions and mirrors they have."""
    placement: PlacementHealth
    """How closed and open fragments are placed."""
    metadata: str
    """State of the session with the metadata store."""
