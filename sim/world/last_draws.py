"""What a seed draws behind all else, so that whatever it drew before stays as it was."""

from random import Random

import attrs

from sim.world.options import Options


def draw_last(drawn: Options, rng: Random) -> Options:
    """The same world, with what is drawn last."""
    knobs = attrs.evolve(drawn.knobs, disks_per_node=rng.choice((1, 1, 2)))
    return attrs.evolve(drawn, knobs=knobs)
