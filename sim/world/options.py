"""The options of a world: its shape, its knobs, its hazards.

A seed draws them before its history begins. Options are values: the trace begins with them.
"""

import attrs

from sim.world.placement_knobs import UNTOUCHED, PlacementKnobs
from sim.world.stream_knobs import PLAIN, StreamKnobs
from topology.quorum import QuorumConfig


@attrs.frozen(kw_only=True)
class WorldShape:
    """The processes of a world."""

    nodes_by_region: tuple[tuple[str, int], ...]
    """How many storage nodes each region has."""
    quorum: QuorumConfig
    """The quorum of the main stream."""
    writers_count: int
    """Processes that append; if there are several, they take the stream from each other."""
    readers_count: int
    """Processes that read and follow."""
    proxies_count: int = 0
    """Write proxies, in the first two regions; if there are any, writers use them."""
    relays_per_region: int = 0
    """Members of each region's relay group; if there are any, the stream has its home in the
    first region, and is mirrored in all others."""

    @property
    def regions(self) -> tuple[str, ...]:
        """The names of the regions."""
        return tuple(name for name, _ in self.nodes_by_region)


@attrs.frozen(kw_only=True)
class Knobs:
    """The settings of the parts, and the habits of the applications."""

    session_timeout_s: float
    segment_bytes: int
    journal_file_bytes: int
    value_bytes_max: int
    pipelined_max: int
    """Appends that a writer sends before it waits for their answers."""
    pause_s_max: float
    """Longest rest of a writer between two such batches of appends."""
    appends_per_tenure: int
    """Appends of a writer before it gives the stream back."""
    rest_s_max: float
    """Longest rest of a writer before it takes the stream again."""
    spread_s_max: float = 0.0
    """Longest rest before an append, while earlier ones wait for answers."""
    is_upkeep_hasty: bool = False
    """Whether nodes collect garbage, compact and scrub all the time."""
    is_room_tight: bool = False
    """Whether nodes have room for only a few requests and answers at a time."""
    are_writers_named: bool = False
    """Whether writers number their records, and resend unanswered ones."""
    are_writers_twins: bool = False
    """Whether all writers are live processes under one writer id."""
    member_away_s: float = 10.0
    """How long a member of an open ledger may be away before it is replaced."""
    disks_per_node: int = 1
    """Data directories of each storage node, each on a disk of its own."""
    writer_window_records: int | None = None
    """How many of the largest records a writer has room for; None: for more than it sends."""
    other_bytes_share: float = 0.0
    """Share of the records repeated by named writers that carry other bytes than before."""
    is_region_exchanged: bool = False
    """Whether, once all is calm, a region is lost for good just after a node of another
    joined."""
    is_damaged_twice: bool = False
    """Whether at the end a file is damaged, repaired, and damaged again."""
    headers_share: float = 0.0
    """Share of records that have headers."""
    append_timeout_s: float = 60.0
    """How long an append waits before its writer gives up for good."""
    failed_kept_s: float = 0.0
    """How long, at most, an application keeps the block of a failed writer open."""
    repeats_share: float = 0.0
    """Share of rounds before which a named writer repeats its last acknowledged record."""
    relays_after_s: float = 0.0
    """How long the stream is used before its relays start."""
    relay_buffer_entries: int = 100_000
    """Entries of a partition in the buffer of a relay, at most."""
    local_only_share: float = 0.0
    """Share of the records that must not leave the region of the stream's home."""
    relay_evict_bytes: int | None = None
    """Trimmed bytes that the stream keeps for mirrors that lack them; None keeps all."""
    settings_rest_s_max: float | None = None
    """Longest rest of an operator between two changes of settings of the relayed stream: paused
    targets, hold or evict, and a bound on loss; None: nobody changes them."""
    settings_only_paused: bool = False
    """Whether this operator only pauses targets and lets them go on."""
    rpo_max_bytes: int | None = None
    """Bytes of a partition that the loss of its home may cost; None: any."""
    rpo_max_s: float | None = None
    """Seconds that it may cost; None: any."""
    moves_rest_s_max: float | None = None
    """Longest rest of an operator between two moves of the stream's home; None: no moves."""
    movers_count: int = 1
    """How many operators move it."""
    move_s_max: float = 10.0
    """How long a move may take before it is given up."""
    moves_dropped_share: float = 0.0
    """Share of the moves that their operator stops in the middle."""
    failovers_rest_s_max: float | None = None
    """Longest rest of an operator between two failovers of the stream; None: no failovers."""
    rescuers_count: int = 1
    """How many operators fail it over."""
    failover_s_max: float = 20.0
    """How long a failover may take before it is given up."""
    failovers_dropped_share: float = 0.0
    """Share of the failovers that their operator stops in the middle."""
    failovers_at_once_share: float = 0.0
    """Share of the failovers that another one follows at once."""
    stops_when_isolated: bool = False
    """Whether the stream takes no appends while its home is cut off (`on_isolation=stop`)."""
    leases_changed_share: float = 0.0
    """Share of the failovers just before which an operator changes the stream's lease."""
    resyncs_share: float = 0.0
    """Share of the failovers after which an operator wants to begin the mirror again that has
    become the home, by what was the home before."""
    resyncs_rest_s_max: float | None = None
    """Longest rest of an operator between two resyncs of a region's mirrors; None: none."""
    clock_drift_max: float = 0.0
    """Share by which the clocks of a host, which leases are kept by, run slow or fast."""
    are_pauses_sleep: bool = False
    """Whether the machine of a paused process sleeps: one of its clocks stands still."""
    is_target_wiped: bool = False
    """Whether, once all is calm, a target of the relayed stream loses all its disks."""
    is_rpo_of_any: bool = False
    """Whether one mirror within that bound is enough."""
    hedge: str = "auto"
    """The hedge policy of all reads, as in `connect`; `own` is one that is not geolog's."""

    @property
    def has_one_home(self) -> bool:
        """Whether a stream that has a home keeps it."""
        return self.moves_rest_s_max is None and self.failovers_rest_s_max is None

    @property
    def may_evict(self) -> bool:
        """Whether the stream may let mirrors go on without what they lack, at some time."""
        return self.relay_evict_bytes is not None or self.settings_rest_s_max is not None

    @property
    def leaves_local_only(self) -> bool:
        """Whether records may stay in a region that is the home no more."""
        return self.local_only_share > 0 and not self.has_one_home


@attrs.frozen(kw_only=True)
class Links:
    """Distances between hosts, and how steady the network and the disks are."""

    latency_s_within: float
    """One way, within a region."""
    latency_s_across: float
    """One way between regions, at most; drawn for each pair."""
    jitter: float
    """Share of the latency that may be added."""
    stall_chance: float
    """Chance that a piece is lost and sent again, which takes a while."""
    sync_s: float
    """The usual time of a disk's sync."""


@attrs.frozen(kw_only=True)
class Hazards:
    """The faults: `strikes_per_s` gives the rate of each kind, in simulated time."""

    chaos_s: float
    """How long faults strike before they stop."""
    duration_s_max: float
    """The longest duration of one fault."""
    strikes_per_s: tuple[tuple[str, float], ...]
    lies_in_wait: bool = False
    """Whether a strike waits for the next change of a ledger's record: fences, recovery reads,
    ensemble changes and closes follow each other closely then."""


@attrs.frozen(kw_only=True)
class Options:
    """Everything drawn before a history begins."""

    shape: WorldShape
    knobs: Knobs
    links: Links
    hazards: Hazards
    stream: StreamKnobs = PLAIN
    placement: PlacementKnobs = UNTOUCHED

    @property
    def relay_to(self) -> tuple[str, ...]:
        """The regions that mirror the stream at first."""
        return self.shape.regions[1:] if self.shape.relays_per_region else ()

    @property
    def relay_regions(self) -> tuple[str, ...]:
        """The regions that have a copy of the stream, whichever is its home."""
        return self.shape.regions if self.shape.relays_per_region else ()

    def writer_region(self, number: int) -> str:
        """The region of a writer: direct writers of a stream with a home are there.

        Where it moves they are in all regions, and append from the one that is the home.
        """
        regions = self.shape.regions
        is_at_home = (
            self.placement.is_regional
            and not self.shape.proxies_count
            and self.knobs.has_one_home
        )
        return regions[0] if is_at_home else regions[number % len(regions)]
