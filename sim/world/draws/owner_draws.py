"""Worlds made for what befalls owners: sessions lost early, failed ones that are kept.

Drawn from a random source of their own, so that a seed that does not draw one stays as it was.
"""

from random import Random

import attrs

from sim.world.options import Options

LOST_EARLY = "ambush-ownership"
"""Strikes in these worlds alone: elsewhere sessions are lost at any time."""

_KEPT_SHARE = 0.05
_LOST_SHARE = 0.05


def draw_owners(drawn: Options, rng: Random) -> Options:
    """The same world, or one that is made for one thing of owners."""
    share = rng.random()
    if share < _KEPT_SHARE:
        return with_failed_writers_kept(drawn)
    if share < _KEPT_SHARE + _LOST_SHARE:
        return with_sessions_lost_early(drawn)
    return drawn


def with_failed_writers_kept(drawn: Options) -> Options:
    """The same where the only writer soon fails, and its application keeps the block open.

    Entries that are not acknowledged are at some members by then, and nobody takes over: reads
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
    """The same where an owner's session is lost before the owner has looked at it.

    It goes on to write all the time, and readers are far away: they find that more is in
    flight, and have to look for the owner.
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
