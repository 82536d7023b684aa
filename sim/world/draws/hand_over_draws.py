"""Worlds made for hand-overs: owners give partitions to each other while sessions append."""

import attrs

from sim.world.chance import Draws
from sim.world.options import Options
from sim.world.placement_knobs import UNTOUCHED
from sim.world.stream_knobs import StreamKnobs

HAND_OVER = "ambush-hand-over"
"""Strikes in the worlds made for it, and in no others: elsewhere nothing is handed over."""

_SHARE = 0.03


def draw_hand_overs(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for hand-overs."""
    return with_hand_overs(drawn) if draws.happens("hand-overs", _SHARE) else drawn


def with_hand_overs(drawn: Options) -> Options:
    """The same, but owners have one partition each and give them to each other.

    Two live processes with one writer id append through them. Some of their records are
    refused, with others on the way behind.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=2),
        placement=UNTOUCHED,
        stream=StreamKnobs(
            partitions=3,
            owners_apart=3,
            owner_hold_s_max=12.0,
            hands_over=True,
            unmet_share=0.25,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            value_bytes_max=20,
            pipelined_max=6,
            appends_per_tenure=20,
            pause_s_max=0.1,
            spread_s_max=0.02,
            rest_s_max=2.0,
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
            duration_s_max=4.0,
            strikes_per_s=(
                (HAND_OVER, 0.5),
                ("cut-link", 0.2),
                ("kill-client", 0.1),
                ("metadata-expiry", 0.1),
                ("pause-process", 0.2),
            ),
            lies_in_wait=False,
        ),
    )
