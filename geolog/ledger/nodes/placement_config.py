"""Settings for choosing nodes for new entries, and replicas for reads."""

from pathlib import Path
from typing import Literal

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.location import Location


@attrs.frozen(kw_only=True)
class PlacementConfig:
    """How a client locates nodes and chooses among them."""

    location: str | None = None
    """Location of the client, e.g. `/region/rack`. Nodes of its rack are then preferred, and
    `local_node` streams keep their copy there. Without it only the region is known."""

    locations: Path | None = None
    """TOML file with node locations: under `[locations]`, node id or pattern to `/region/rack`.
    It overrides registered locations, and is read again when it changes."""

    location_script: Path | None = None
    """Program that gets a node id and prints the node's location. It overrides the table. If it
    fails, none of its answers are used."""

    script_timeout_s: float = 5.0
    """Kill the script after this time and use none of its answers."""

    script_kept_s: float = 600.0
    """Use an answer of the script for this long before asking again."""

    weight_by_free_space: bool = False
    """Choose nodes with more free space more often."""

    weight_multiple_max: float = 3.0
    """Count a node's free space as at most this many times the median."""

    stabilize_s: float = 0.0
    """For this long after a node left, it may still be chosen if too few others are up, so
    that ledgers can be created during a rolling restart. 0: never."""

    departures_max: int = 3
    """A node that left more often than this within `flapping` is chosen last."""

    flapping_s: float = 600.0
    """Period in which departures are counted."""

    read_order: Literal["seed", "bookkeeper"] = "seed"
    """Replica to read first. `seed`: a random one of the closest, then another rack,
    another region, the rest. `bookkeeper`: two of the region, then one of another."""

    next_regions: str | None = None
    """Regions to read from after the client's own, the best first, e.g. `us-east,eu-west`;
    regions not named come last. Unset: all are equally far. `seed` order only."""

    def __attrs_post_init__(self) -> None:
        for name in ("script_timeout_s", "script_kept_s", "weight_multiple_max", "flapping_s"):
            if not getattr(self, name) > 0:
                raise InvalidConfigError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("stabilize_s", "departures_max"):
            if getattr(self, name) < 0:
                raise InvalidConfigError(f"{name} must be >= 0, got {getattr(self, name)}")
        self.standing(None)

    @property
    def next_regions_named(self) -> tuple[str, ...]:
        """The regions of `next_regions`."""
        return tuple(name.strip() for name in (self.next_regions or "").split(",") if name)

    def standing(self, region: str | None) -> Location | None:
        """Location of a client in this region; the rack may be unknown. InvalidConfigError."""
        if self.location is None:
            return None if region is None else Location.within(region)
        try:
            place = Location.parse(self.location)
        except InvalidArgumentError as error:
            raise InvalidConfigError(str(error)) from None
        if region is not None and place.region != region:
            raise InvalidConfigError(
                f"location {self.location!r} is not in region {region!r}, the region of this"
                " client: make the two agree"
            )
        return place
