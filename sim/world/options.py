"""What a world is: its shape, its knobs, its hazards.

A seed draws one before its history begins. The options are values: the trace begins with them.
"""

import attrs

from sim.world.placement_knobs import UNTOUCHED, PlacementKnobs
from sim.world.stream_knobs import PLAIN, StreamKnobs
from topology.quorum import QuorumConfig


@attrs.frozen(kw_only=True)
class WorldShape:
    """Who is in the world."""

    nodes_by_region: tuple[tuple[str, int], ...]
    """How many storage nodes each region has."""
    quorum: QuorumConfig
    """Of the one stream that all use."""
    writers_count: int
    """Processes that append; more than one take the stream from each other."""
    readers_count: int
    """Processes that read and follow."""

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions' names."""
        return tuple(name for name, _ in self.nodes_by_region)


@attrs.frozen(kw_only=True)
class Knobs:
    """How the parts are set, and what the applications do."""

    session_timeout_s: float
    segment_bytes: int
    journal_file_bytes: int
    value_bytes_max: int
    pipelined_max: int
    """Appends that a writer sends before it waits for their answers."""
    pause_s_max: float
    """Longest rest of a writer between two such runs."""
    appends_per_tenure: int
    """Appends of a writer before it gives the stream back."""
    rest_s_max: float
    """Longest rest of a writer before it takes the stream again."""
    spread_s_max: float = 0.0
    """Longest rest before an append of a run, while those before it wait for answers."""
    is_upkeep_hasty: bool = False
    """Whether nodes look for garbage, compact and scrub all the time."""
    is_room_tight: bool = False
    """Whether nodes have room for a few questions and answers at a time."""
    are_writers_named: bool = False
    """Whether writers number their records, and send what was not answered again."""
    member_away_s: float = 10.0
    """How long a member of an open ledger is away before another takes its place."""
    disks_per_node: int = 1
    """Data directories of each storage node, each on a disk of its own."""
    writer_window_records: int | None = None
    """How many of the largest records a writer has room for; None: for more than it sends."""
    other_bytes_share: float = 0.0
    """Share of what named writers send once more that comes with other bytes than before."""
    is_region_exchanged: bool = False
    """Whether, once all is calm, a region goes for good as a node of another has come."""
    is_damaged_twice: bool = False
    """Whether at the end a file is damaged, repaired, and damaged again."""
    headers_share: float = 0.0
    """Share of records that have headers."""
    append_timeout_s: float = 60.0
    """How long an append waits before its writer gives up for good."""
    failed_kept_s: float = 0.0
    """How long an application keeps the block of a writer open that has failed, at most."""
    repeats_share: float = 0.0
    """Share of runs before which a named writer sends once more what was answered last."""


@attrs.frozen(kw_only=True)
class Links:
    """How far things are from each other, and how steady the way is."""

    latency_s_within: float
    """One way, in one region."""
    latency_s_across: float
    """One way at most, between regions; drawn for each pair."""
    jitter: float
    """Share of the latency that may come on top."""
    stall_chance: float
    """Chance that a piece is lost and sent again, which takes a while."""
    sync_s: float
    """How long a sync of a disk takes, most of the time."""


@attrs.frozen(kw_only=True)
class Hazards:
    """What strikes, and how often: `strikes_per_s` by kind of fault, in simulated time."""

    chaos_s: float
    """How long faults strike before they stop."""
    duration_s_max: float
    """Longest time that one of them lasts."""
    strikes_per_s: tuple[tuple[str, float], ...]
    lies_in_wait: bool = False
    """Whether a strike waits for the next change of a ledger's record: that is where fences,
    reads of recovery, changes of the ensemble and closes follow each other closely."""


@attrs.frozen(kw_only=True)
class Options:
    """All that is drawn before a history begins."""

    shape: WorldShape
    knobs: Knobs
    links: Links
    hazards: Hazards
    stream: StreamKnobs = PLAIN
    placement: PlacementKnobs = UNTOUCHED
