"""What a planted bug is: a number, what is wrong, and what it replaces."""

from collections.abc import Callable, Sequence

import attrs

from sim.world.options import Options

Patch = tuple[object, str, object]
"""What is replaced: of which class or module, which name, by what."""


@attrs.frozen
class PlantedBug:
    """One defect, by its number in docs/PLANTED_BUGS.md."""

    number: int
    what: str
    patches: Sequence[Patch]
    is_of_streams: bool = False
    """Whether it shows only where more is done to the stream than to write and read it."""
    is_of_placement: bool = False
    """Whether it shows only where operators look after placement."""
    is_of_clocks: bool = False
    """Whether it shows only where wall clocks are far off."""
    is_of_exchange: bool = False
    """Whether it shows only where a region goes as a node of another has come."""
    is_of_damage: bool = False
    """Whether it shows only in worlds that are made for damage."""
    is_of_owners: bool = False
    """Whether it shows only where owners fail, or their sessions are lost early."""
    made_for: Callable[[Options], Options] | None = None
    """What makes the worlds that are hunted in of others, if it shows only there."""
