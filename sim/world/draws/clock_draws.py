"""Worlds whose clocks are far off, and whose retention by age is looked at all the time.

Either the wall clocks of hosts are off, or that of the metadata store: one clock of those that
retention goes by may be wrong at a time. Each kind is drawn from a random source of its own, so
that a seed that does not draw one stays as it was.
"""

from random import Random

import attrs

from sim.world.options import Options
from sim.world.stream_knobs import StreamKnobs

FAR = "far-clock"
STORE_CLOCK = "store-clock"
"""Both strike in these worlds alone."""

_OF_HOSTS = frozenset({"clock-jump", "clock-skew", FAR})

_FAR_SHARE = 0.08
_STORE_SHARE = 0.06


def draw_clocks(drawn: Options, rng: Random) -> Options:
    """The same world, or one in which clocks are far off."""
    return with_far_clocks(drawn) if rng.random() < _FAR_SHARE else drawn


def draw_store_clocks(drawn: Options, rng: Random) -> Options:
    """The same world, or one in which the metadata store's clock is far off."""
    return with_store_clock_off(drawn) if rng.random() < _STORE_SHARE else drawn


def with_far_clocks(drawn: Options) -> Options:
    """The same where clocks of hosts are far off, segments are short, and what is old goes."""
    return _struck(drawn, (*drawn.hazards.strikes_per_s[:2], (FAR, 1.0)))


def with_store_clock_off(drawn: Options) -> Options:
    """The same where the metadata store's clock alone goes far back or on, and comes right."""
    others = [
        (kind, per_s) for kind, per_s in drawn.hazards.strikes_per_s if kind not in _OF_HOSTS
    ]
    return _struck(drawn, (*others[:2], (STORE_CLOCK, 0.5)))


def _struck(drawn: Options, strikes_per_s: tuple[tuple[str, float], ...]) -> Options:
    stream: StreamKnobs = attrs.evolve(
        drawn.stream, retention_s=3.0, retention_every_s=1.0, segment_age_s=1.0
    )
    hazards = attrs.evolve(drawn.hazards, strikes_per_s=strikes_per_s)
    return attrs.evolve(drawn, stream=stream, hazards=hazards)
