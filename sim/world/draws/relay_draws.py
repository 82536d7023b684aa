"""Worlds made for relays: a stream is mirrored in other regions while coordinators fail."""

import attrs

from sim.world.chance import Draws
from sim.world.options import Options
from sim.world.placement_knobs import PlacementKnobs
from sim.world.stream_knobs import StreamKnobs
from topology.quorum import QuorumConfig
from topology.stream_policy import PolicyKind

DRAIN_RELAY = "drain-relay"
COORDINATORS_GONE = "coordinators-gone"
ZOMBIE_RELAY = "zombie-relay"
RELAYS_GONE = "relays-gone"
LOST_LEAVE = "lost-leave"
CUT_REGIONS = "cut-regions"
CUT_REGIONS_ONE_WAY = "cut-regions-one-way"
FLAPPING_LINK = "flapping-link"
SLOW_TARGET = "slow-target"
AMBUSH_REPLAY = "ambush-replay"
SLOW_ONE_WAY = "slow-one-way"
OTHER_VERSION = "other-version"
STRANGER = "stranger"

_SHARE = 0.15
_MATRIX_SHARE = 0.6
_WIPED_SHARE = 0.25
_BOUNDED_SHARE = 0.3
_LOCAL_SHARE = 0.3
_RESET_SHARE = 0.3
_RECORD_BYTES_MORE = 300
"""The most that a record takes in a batch in addition to its value."""
_STRIKES_PER_S = (
    (COORDINATORS_GONE, 0.3),
    (DRAIN_RELAY, 0.15),
    (ZOMBIE_RELAY, 0.15),
    ("cut-link", 0.2),
    ("cut-one-way", 0.1),
    ("isolate-region", 0.05),
    ("kill-client", 0.2),
    ("kill-node", 0.1),
    ("metadata-answer-lost", 0.1),
    ("metadata-cut", 0.1),
    ("metadata-expiry", 0.1),
    ("metadata-lag", 0.1),
    ("pause-process", 0.2),
    ("reset-connection", 0.5),
    ("slow-host", 0.1),
)
_MATRIX_PER_S = (
    (RELAYS_GONE, 0.1),
    (LOST_LEAVE, 0.15),
    (CUT_REGIONS, 0.1),
    (CUT_REGIONS_ONE_WAY, 0.1),
    (FLAPPING_LINK, 0.1),
    (SLOW_TARGET, 0.1),
    (AMBUSH_REPLAY, 0.3),
    (SLOW_ONE_WAY, 0.1),
    (OTHER_VERSION, 0.1),
    (STRANGER, 0.2),
    ("clock-jump", 0.1),
)
STRUCK_WITH_RELAYS = frozenset(
    {
        DRAIN_RELAY,
        COORDINATORS_GONE,
        ZOMBIE_RELAY,
        *(kind for kind, _ in _MATRIX_PER_S if kind != "clock-jump"),
    }
)

_KINDS = 6
"""Faults of each such world: one may hide another."""


def bounded(drawn: Options, draws: Draws) -> Options:
    """The same world with relays, with a bound on what the loss of its home could cost.

    It allows a few rounds of appends, so that a mirror that is away for a second is too late.
    """
    knobs = drawn.knobs
    rounds = draws.choice("rounds within the bound", (2, 5, 20))
    round_bytes = (knobs.value_bytes_max + _RECORD_BYTES_MORE) * knobs.pipelined_max
    is_in_time = draws.happens("bound in time", 0.4)
    stream = drawn.stream
    if not is_in_time:  # A bound this small is no setting that a caller may change.
        stream = attrs.evolve(stream, partitions_added=0)
    return attrs.evolve(
        drawn,
        stream=stream,
        knobs=attrs.evolve(
            knobs,
            rpo_max_bytes=None if is_in_time else rounds * round_bytes,
            rpo_max_s=draws.choice("seconds of the bound", (0.5, 1.0, 3.0))
            if is_in_time
            else None,
            is_rpo_of_any=draws.happens("bound at any target", 0.3),
        ),
    )


def with_bounded_loss(drawn: Options, draws: Draws) -> Options:
    """A world with relays whose stream bounds what the loss of its home could cost."""
    return bounded(with_relays(drawn, draws), draws)


def draw_relays(drawn: Options, draws: Draws) -> Options:
    """The same world, or one with relays."""
    return with_some_relays(drawn, draws) if draws.happens("relays", _SHARE) else drawn


def with_some_relays(drawn: Options, draws: Draws) -> Options:
    """A world with relays, and in some with the faults of links, or with a bound on loss."""
    relayed = with_relays(drawn, draws)
    if draws.happens("matrix of relays", _MATRIX_SHARE):
        relayed = with_matrix(relayed, draws)
    return with_more_settings(relayed, draws)


def with_more_settings(relayed: Options, draws: Draws) -> Options:
    """The same world with relays; some bound a loss, have local-only records, or change."""
    if draws.happens("bound on loss", _BOUNDED_SHARE):
        relayed = bounded(relayed, draws)
    if draws.happens("local-only records", _LOCAL_SHARE):
        relayed = partly_local(relayed, draws)
    is_reset = draws.happens("settings that change", _RESET_SHARE)
    return reset(relayed, draws) if is_reset else relayed


def reset(relayed: Options, draws: Draws) -> Options:
    """The same world with relays, in which settings of the stream change.

    Not where a bound in bytes is too small for a caller to set.
    """
    if relayed.knobs.rpo_max_bytes is not None:
        return relayed
    rest_s_max = draws.choice("rest between settings", (1.0, 3.0))
    knobs = attrs.evolve(relayed.knobs, settings_rest_s_max=rest_s_max)
    return attrs.evolve(relayed, knobs=knobs)


def with_settings_changed(drawn: Options, draws: Draws) -> Options:
    """A world with relays, in which settings of the stream change."""
    return reset(with_relays(drawn, draws), draws)


def partly_local(
    relayed: Options, draws: Draws, purpose: str = "share of local-only records"
) -> Options:
    """The same world with relays, in which some records must stay at home."""
    share = draws.choice(purpose, (0.1, 0.3, 0.9))
    knobs = attrs.evolve(relayed.knobs, local_only_share=share)
    return attrs.evolve(relayed, knobs=knobs)


def with_local_only(drawn: Options, draws: Draws) -> Options:
    """A world with relays in which some records must stay at home."""
    return partly_local(with_relays(drawn, draws), draws)


def with_matrix(relayed: Options, draws: Draws) -> Options:
    """The same world with relays, struck by faults of links, of whole groups, and of clocks.

    In some a second stream is relayed, too, which is deleted and made again. In some a target
    is wiped in the end; a stream that is sealed could not have its mirror begin again.
    """
    is_wiped = draws.happens("target wiped", _WIPED_SHARE)
    kinds = draws.sample(
        "fault of the matrix",
        [kind for kind, _ in _MATRIX_PER_S],
        draws.choice("faults of the matrix", (1, 2, 3)),
    )
    strikes = tuple(one for one in _MATRIX_PER_S if one[0] in kinds)
    return attrs.evolve(
        relayed,
        stream=attrs.evolve(
            relayed.stream,
            deletion_rest_s_max=draws.choice("deletion while relayed", (None, None, 2.0, 8.0)),
            seal_after_s_max=None if is_wiped else relayed.stream.seal_after_s_max,
        ),
        knobs=attrs.evolve(relayed.knobs, is_target_wiped=is_wiped),
        hazards=attrs.evolve(
            relayed.hazards, strikes_per_s=relayed.hazards.strikes_per_s + strikes
        ),
    )


def with_relays(drawn: Options, draws: Draws) -> Options:
    """The same, but the stream has its home in the first region, and mirrors in the others.

    Each region has two or three relays. Coordinators are killed, leave and wake up too late,
    at home and at targets, also at once; the front of the stream goes, by hand and by
    retention, partitions are added, and sometimes the stream is sealed meanwhile.
    """
    regions = drawn.shape.regions[: draws.choice("regions with relays", (2, 2, 3))]
    copies = draws.choice("copies at home", (2, 2, 3))
    quorum = QuorumConfig(
        ensemble_size=copies,
        write_quorum=copies,
        ack_quorum=2,
        min_regions=1,
    )
    spare = draws.choice("spare nodes of relays", (0, 1))
    kinds = draws.sample("fault of relays", [kind for kind, _ in _STRIKES_PER_S], _KINDS)
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            nodes_by_region=tuple((region, copies + spare) for region in regions),
            quorum=quorum,
            writers_count=draws.choice("writers with relays", (1, 2)),
            readers_count=2,
            relays_per_region=draws.choice("relays per region", (2, 2, 3)),
        ),
        placement=PlacementKnobs(policy=PolicyKind.DEFAULT, is_regional=True),
        stream=StreamKnobs(
            partitions=draws.choice("partitions relayed", (1, 2)),
            partitions_added=draws.choice("partitions added to relayed ones", (0, 0, 1)),
            truncation_rest_s_max=draws.choice("truncations of relayed ones", (None, 0.5, 3.0)),
            seal_after_s_max=draws.choice("seal of relayed ones", (None, None, None, 15.0)),
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            segment_bytes=64 << 10,
            value_bytes_max=draws.choice("values relayed", (20, 1000, 4000)),
            pipelined_max=draws.choice("pipelined to relays", (1, 4, 10)),
            appends_per_tenure=draws.choice("tenures relayed", (10, 40, 400)),
            pause_s_max=0.1,
            rest_s_max=1.0,
            relay_buffer_entries=draws.choice("buffers of relays", (100_000, 100_000, 3, 20)),
            relay_evict_bytes=draws.choice("evictions", (None, None, 1, 3000)),
            relays_after_s=draws.choice("relays after", (0.0, 0.0, 6.0)),
            is_room_tight=False,
            writer_window_records=None,
            failed_kept_s=0.0,
            is_region_exchanged=False,
            is_damaged_twice=False,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=20.0,
            duration_s_max=4.0,
            strikes_per_s=tuple(one for one in _STRIKES_PER_S if one[0] in kinds),
            lies_in_wait=False,
        ),
    )
