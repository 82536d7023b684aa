"""Worlds made for damage: sectors that cannot be read, files that are damaged twice.

Drawn from a random source of their own, so that a seed that does not draw one stays as it was.
"""

from random import Random

import attrs

from sim.world.endings import ENDINGS
from sim.world.options import Options

UNREADABLE = "unreadable-sector"
"""Strikes in these worlds alone."""

_UNREADABLE_SHARE = 0.05
_TWICE_SHARE = 0.05


def draw_damage(drawn: Options, rng: Random) -> Options:
    """The same world, or one that is made for damage.

    One where processes only end stays so, and so does one in which a region goes for good.
    """
    share = rng.random()
    are_all_endings = ENDINGS.issuperset(kind for kind, _ in drawn.hazards.strikes_per_s)
    if are_all_endings or drawn.knobs.is_region_exchanged:
        return drawn
    if share < _UNREADABLE_SHARE:
        return with_unreadable_sectors(drawn)
    if share < _UNREADABLE_SHARE + _TWICE_SHARE:
        return with_damage_twice(drawn)
    return drawn


def with_unreadable_sectors(drawn: Options) -> Options:
    """The same where sectors of disks cannot be read."""
    strikes = (*drawn.hazards.strikes_per_s, (UNREADABLE, 2.0))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, strikes_per_s=strikes))


def with_damage_twice(drawn: Options) -> Options:
    """The same where at the end a file is damaged, that is settled, and it is damaged again.

    Nodes in a hurry would have compacted it away before that. Ledgers that were made ahead keep
    doubt from being settled, so there are few.
    """
    knobs = attrs.evolve(
        drawn.knobs, is_damaged_twice=True, is_upkeep_hasty=False, segment_bytes=1 << 20
    )
    return attrs.evolve(drawn, knobs=knobs)
