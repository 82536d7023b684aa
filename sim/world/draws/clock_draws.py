"""Worlds whose clocks are far off, and which enforce retention by age all the time.

Either the wall clocks of hosts are off, or the clock of the metadata store is. Retention may
rely on one of them being right, so no world has both wrong at once.
"""

import attrs

from sim.world.chance import Draws
from sim.world.options import Options
from sim.world.stream_knobs import StreamKnobs

FAR = "far-clock"
STORE_CLOCK = "store-clock"
"""Each strikes in the worlds made for it, and in no others."""

_OF_HOSTS = frozenset({"clock-jump", "clock-skew", FAR})

_FAR_SHARE = 0.08
_STORE_SHARE = 0.06


def draw_clocks(drawn: Options, draws: Draws) -> Options:
    """The same world, or one in which a clock is far off."""
    if draws.happens("store clock far off", _STORE_SHARE):
        return with_store_clock_off(drawn)
    return with_far_clocks(drawn) if draws.happens("host clocks far off", _FAR_SHARE) else drawn


def with_far_clocks(drawn: Options) -> Options:
    """The same, but clocks of hosts are far off, segments are short, and old records go."""
    return _struck(drawn, (*drawn.hazards.strikes_per_s[:2], (FAR, 1.0)))


def with_store_clock_off(drawn: Options) -> Options:
    """The same, but the metadata store's clock, and no other, goes far off and comes right."""
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
