"""Worlds whose wall clocks are far off, and whose retention by age is looked at all the time.

Drawn from a random source of their own, so that a seed that does not draw one stays as it was.
"""

from random import Random

import attrs

from sim.world.options import Options
from sim.world.stream_knobs import StreamKnobs

FAR = "far-clock"
"""Strikes in these worlds alone."""

_FAR_SHARE = 0.08


def draw_clocks(drawn: Options, rng: Random) -> Options:
    """The same world, or one in which clocks are far off."""
    return with_far_clocks(drawn) if rng.random() < _FAR_SHARE else drawn


def with_far_clocks(drawn: Options) -> Options:
    """The same where clocks are far off, segments are short, and what is old is cut off."""
    stream: StreamKnobs = attrs.evolve(
        drawn.stream, retention_s=3.0, retention_every_s=1.0, segment_age_s=1.0
    )
    hazards = drawn.hazards
    strikes = (*hazards.strikes_per_s[:2], (FAR, 1.0))
    return attrs.evolve(
        drawn, stream=stream, hazards=attrs.evolve(hazards, strikes_per_s=strikes)
    )
