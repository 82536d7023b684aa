"""Worlds made for owners: sessions lost early, failed writers that are kept open."""

import attrs

from sim.world.chance import Draws
from sim.world.options import Options

LOST_EARLY = "ambush-ownership"
"""Strikes in the worlds made for it, and in no others: elsewhere sessions end at any time."""

_KEPT_SHARE = 0.05
_LOST_SHARE = 0.05


def draw_owners(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for something that happens to owners."""
    made = draws.one_of(
        "world made for owners",
        [(_KEPT_SHARE, with_failed_writers_kept), (_LOST_SHARE, with_sessions_lost_early)],
    )
    return made(drawn) if made else drawn


def with_failed_writers_kept(drawn: Options) -> Options:
    """The same, but the only writer soon fails, and its application keeps the block open.

    By then some members have entries that were not acknowledged, and nobody takes over: reads
    end only if readers recover the ledger.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=1),
        stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            append_timeout_s=2.0,
            failed_kept_s=60.0,
            appends_per_tenure=400,
            pause_s_max=0.02,
            rest_s_max=0.5,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=8.0,
            strikes_per_s=(("cut-one-way", 0.2), ("cut-writer", 0.5)),
            lies_in_wait=False,
        ),
    )


def with_sessions_lost_early(drawn: Options) -> Options:
    """The same, but an owner's session is lost before the owner first looks at it.

    The owner keeps writing, and readers are far away: they see that more is in flight and have
    to look for the owner.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=1, readers_count=2),
        stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            pipelined_max=10,
            appends_per_tenure=400,
            pause_s_max=0.02,
            rest_s_max=0.5,
            spread_s_max=0.05,
        ),
        links=attrs.evolve(drawn.links, latency_s_across=0.1),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=1.0,
            strikes_per_s=((LOST_EARLY, 2.0),),
            lies_in_wait=False,
        ),
    )
