"""Worlds in which writers append through write proxies."""

import attrs

from sim.world.chance import Draws
from sim.world.draws.session_draws import with_twins
from sim.world.options import Options

DRAIN = "drain-proxy"

_PROXIES_SHARE = 0.3
_TWINS_SHARE = 0.1
_REGIONS_MAX = 2
_STRIKES_PER_S = (("kill-client", 0.1), ("pause-process", 0.1), (DRAIN, 0.15))


def draw_proxies(drawn: Options, draws: Draws) -> Options:
    """The same world, or one with write proxies."""
    if not draws.happens("proxies", _PROXIES_SHARE):
        return drawn
    if draws.happens("proxied twins", _TWINS_SHARE):
        return with_proxied_twins(drawn)
    return with_proxies(drawn, per_region=draws.choice("proxies per region", (1, 2)))


def with_proxied_twins(drawn: Options) -> Options:
    """Two live processes have one writer id, and append through proxies."""
    twins = with_twins(drawn)
    return with_proxies(
        attrs.evolve(
            twins,
            stream=attrs.evolve(twins.stream, owners_apart=0),
            knobs=attrs.evolve(twins.knobs, are_writers_twins=True),
        )
    )


def with_proxies(drawn: Options, *, per_region: int = 2) -> Options:
    """The same, but two regions have write proxies, which are killed, paused and drained.

    Writers are in both regions, and none is alone.
    """
    regions = min(_REGIONS_MAX, len(drawn.shape.regions))
    hazards = drawn.hazards
    more = [one for one in _STRIKES_PER_S if one[0] not in dict(hazards.strikes_per_s)]
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            proxies_count=per_region * regions,
            writers_count=max(2, drawn.shape.writers_count),
        ),
        hazards=attrs.evolve(hazards, strikes_per_s=(*hazards.strikes_per_s, *more)),
    )
