"""How a client chooses nodes for new entries, and among replicas when it reads."""

from pathlib import Path
from typing import Literal

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.location import Location


@attrs.frozen(kw_only=True)
class PlacementConfig:
    """How a client finds out where nodes stand, and chooses among them."""

    location: str | None = None
    """Where the client stands, `/region/rack`: its own rack comes first then, and `local_node`
    streams have their copy there. Without it the region is all that is known."""

    locations: Path | None = None
    """A table of TOML that says where nodes stand: below `[locations]`, node id or pattern to
    `/region/rack`. It goes before what they registered, and is read again when it changes."""

    location_script: Path | None = None
    """A program that gets a node id and prints where the node stands. It goes before the table;
    what it says is taken over whole or not at all."""

    script_timeout_s: float = 5.0
    """The script is ended after so long, and nothing of what was asked is taken over."""

    script_kept_s: float = 600.0
    """An answer of the script is used for so long before it is asked again."""

    weight_by_free_space: bool = False
    """Nodes that have more space left are chosen more often."""

    weight_multiple_max: float = 3.0
    """A node counts for at most this many times the median of the space left."""

    stabilize_s: float = 0.0
    """So long after it left a node may still be chosen when too few others are up, so that a
    rolling restart does not keep new ledgers from being made. 0: never."""

    departures_max: int = 3
    """A node that left more often than so within `flapping` is chosen after the others."""

    flapping_s: float = 600.0
    """The time in which departures are counted."""

    read_order: Literal["seed", "bookkeeper"] = "seed"
    """Which replica is read first. `seed`: the closest, one at random of those as close, then
    another rack, another region, the rest. `bookkeeper`: two of the region, one of another."""

    def __attrs_post_init__(self) -> None:
        for name in ("script_timeout_s", "script_kept_s", "weight_multiple_max", "flapping_s"):
            if not getattr(self, name) > 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("stabilize_s", "departures_max"):
            if getattr(self, name) < 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}; the smallest is 0")
        self.standing(None)

    def standing(self, region: str | None) -> Location | None:
        """Where a client of this region stands; its rack may be unknown. InvalidConfigError."""
        if self.location is None:
            return None if region is None else Location.within(region)
        try:
            place = Location.parse(self.location)
        except InvalidArgumentError as error:
            raise InvalidConfigError(str(error)) from None
        if region is not None and place.region != region:
            raise InvalidConfigError(
                f"location {self.location!r} is not in region {region!r}, where this client"
                " is said to stand: make both say the same"
            )
        return place
