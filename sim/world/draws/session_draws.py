"""Worlds made for stale or missing metadata: in a new session, after a sync, for readers."""

import attrs

from sim.world.chance import Draws
from sim.world.options import Options
from sim.world.placement_knobs import UNTOUCHED
from sim.world.stream_knobs import StreamKnobs
from topology.quorum import QuorumConfig

SESSION_BEHIND = "session-behind"
LEADER_DEPOSED = "leader-deposed"
MOVED = "ambush-moved"

STRUCK_WITH_SESSIONS = frozenset({SESSION_BEHIND, LEADER_DEPOSED, MOVED})
"""Each strikes in the worlds made for it, and in no others."""

_BEHIND_SHARE = 0.05
_DEPOSED_SHARE = 0.05
_MOVED_SHARE = 0.05
_TWINS_SHARE = 0.03


def draw_sessions(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for stale or missing metadata."""
    made = draws.one_of(
        "world made for metadata",
        [
            (_BEHIND_SHARE, with_sessions_behind),
            (_DEPOSED_SHARE, with_leaders_deposed),
            (_MOVED_SHARE, with_entries_moved),
        ],
    )
    return made(drawn) if made else drawn


def with_sessions_behind(drawn: Options) -> Options:
    """The same, but writers' sessions follow each other fast, at servers that lag.

    Writers take the stream from each other, so a session often ends during a takeover.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=max(2, drawn.shape.writers_count)),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            appends_per_tenure=10,
            rest_s_max=0.5,
            are_writers_named=True,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=1.0,
            strikes_per_s=(("kill-client", 0.2), (SESSION_BEHIND, 2.0)),
            lies_in_wait=False,
        ),
    )


def draw_twins(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for two live sessions of one writer."""
    return with_twins(drawn) if draws.happens("twins", _TWINS_SHARE) else drawn


def with_twins(drawn: Options) -> Options:
    """The same, but two live processes have one writer id, and owners have one partition each.

    The stream grows meanwhile. Sessions follow each other fast, so that they often meet while
    they open.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=2),
        placement=UNTOUCHED,
        stream=StreamKnobs(
            partitions=1,
            partitions_added=3,
            growth_rest_s_max=3.0,
            owners_apart=2,
            owner_hold_s_max=6.0,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            value_bytes_max=20,
            pipelined_max=4,
            appends_per_tenure=5,
            pause_s_max=0.2,
            rest_s_max=0.5,
            are_writers_named=False,
            is_room_tight=False,
            writer_window_records=None,
            other_bytes_share=0.0,
            repeats_share=0.0,
            failed_kept_s=0.0,
        ),
        links=attrs.evolve(drawn.links, latency_s_across=0.05),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=20.0,
            duration_s_max=2.0,
            strikes_per_s=(("cut-link", 0.2), ("kill-client", 0.2), ("pause-process", 0.2)),
            lies_in_wait=False,
        ),
    )


def with_leaders_deposed(drawn: Options) -> Options:
    """The same, but segments follow each other fast while readers ask a deposed leader."""
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, readers_count=2),
        knobs=attrs.evolve(
            drawn.knobs,
            segment_bytes=64 << 10,
            value_bytes_max=20_000,
            appends_per_tenure=10,
            pause_s_max=0.02,
            rest_s_max=0.5,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=4.0,
            strikes_per_s=((LEADER_DEPOSED, 1.0),),
            lies_in_wait=False,
        ),
    )


def with_entries_moved(drawn: Options) -> Options:
    """The same, but members of the ledger that is read are replaced; nothing else strikes.

    There are two spare nodes, and two copies of three are enough.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            nodes_by_region=(("us-east", 3), ("eu-west", 2)),
            quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=1),
            writers_count=1,
            readers_count=3,
        ),
        placement=UNTOUCHED,
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            segment_bytes=1 << 20,
            value_bytes_max=20,
            is_upkeep_hasty=False,
            is_room_tight=False,
            appends_per_tenure=400,
            pause_s_max=0.02,
            rest_s_max=0.5,
        ),
        links=attrs.evolve(drawn.links, latency_s_across=0.001, stall_chance=0.0),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=4.0,
            strikes_per_s=((MOVED, 2.0),),
            lies_in_wait=False,
        ),
    )
