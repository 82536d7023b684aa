"""A planted bug: its number, what is wrong, and what it replaces."""

from collections.abc import Callable, Sequence

import attrs

from sim.world.chance import Draws
from sim.world.options import Options

Patch = tuple[object, str, object]
"""A replacement: the class or module, the name in it, the new value."""


@attrs.frozen
class PlantedBug:
    """One defect, by its number in docs/PLANTED_BUGS.md."""

    number: int
    what: str
    patches: Sequence[Patch]
    is_of_streams: bool = False
    """Whether it shows only where more happens to the stream than writes and reads."""
    is_of_placement: bool = False
    """Whether it shows only where operators work on placement."""
    is_of_clocks: bool = False
    """Whether it shows only where wall clocks are far off."""
    is_of_exchange: bool = False
    """Whether it shows only where a region is lost just after a node of another one joined."""
    is_of_damage: bool = False
    """Whether it shows only in worlds made for damage."""
    is_of_owners: bool = False
    """Whether it shows only where owners fail, or their sessions are lost early."""
    made_for: Callable[[Options], Options] | None = None
    """Makes the special worlds to hunt in, if it shows only there."""
    chaos_s: float | None = None
    """How long faults strike in a history of its hunts, if not as usual."""
    drawn_for: Callable[[Options, Draws], Options] | None = None
    """The same, for worlds that draw more options."""
