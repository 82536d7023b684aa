"""Round trips to the regions of a cluster, and the nearest of them: pure, time is an argument.

Every greeting of a node is a round trip to its region, and so is every probe. The last few of
each region count, until they are `KEPT_S` old; their median is the distance to the region.

**The place of a client** that was not told its region is the region with the least median. It
is known once each region that has nodes answered `ANSWERS_MIN` times, or was silent
`SILENT_MIN` times in a row. A place that was found stays until another region is clearly
nearer, so that orders of replicas do not flap.

Rules: PROTOCOL R20.
"""

from collections import deque
from collections.abc import Collection
from statistics import median

import attrs

KEPT_S = 60.0
"""How long a round trip counts."""

KEPT_MAX = 15
"""Round trips of a region that count, at most."""

ANSWERS_MIN = 3
"""Round trips that make a region's distance known."""

SILENT_MIN = 2
"""Questions in a row without an answer, after which nobody waits for a region."""

CLEARLY_NEARER = 0.8
"""Another region is clearly nearer if its median is below this share of the place's."""


@attrs.define(eq=False)
class _Region:
    trips: deque[tuple[float, float]] = attrs.field(
        factory=lambda: deque[tuple[float, float]](maxlen=KEPT_MAX)
    )
    """When each ended, and how long it took."""
    silent_count: int = 0
    """Questions without an answer since the last one."""


@attrs.define(eq=False)
class RegionRoundTrips:
    """Measurements of one process, by region."""

    _regions: dict[str, _Region] = attrs.field(factory=dict)

    def note(self, region: str, took_s: float, now_s: float) -> None:
        """A node of the region answered after `took_s`."""
        found = self._regions.setdefault(region, _Region())
        found.trips.append((now_s, took_s))
        found.silent_count = 0

    def note_silent(self, region: str) -> None:
        """A node of the region did not answer a question."""
        self._regions.setdefault(region, _Region()).silent_count += 1

    def is_silent(self, region: str) -> bool:
        """Whether the last question had no answer."""
        found = self._regions.get(region)
        return found is not None and found.silent_count > 0

    def count(self, region: str, now_s: float) -> int:
        """Number of round trips that count."""
        return len(self._counting(region, now_s))

    def median_s(self, region: str, now_s: float) -> float | None:
        """The distance to the region; None if no round trip counts."""
        counting = self._counting(region, now_s)
        return median(counting) if counting else None

    def last_s(self, region: str, now_s: float) -> float | None:
        """The last round trip to the region; None if no round trip counts."""
        counting = self._counting(region, now_s)
        return counting[-1] if counting else None

    def nearest(
        self, regions: Collection[str], now_s: float, *, place: str | None = None
    ) -> str | None:
        """The nearest of all regions that have nodes; None if that is not known yet.

        `place` is the region that was the nearest so far.
        """
        medians = dict[str, float]()
        for region in sorted(regions):
            median_s = self.median_s(region, now_s)
            is_known = self.count(region, now_s) >= ANSWERS_MIN
            if not is_known and not self._is_given_up(region):
                return None
            if median_s is not None:
                medians[region] = median_s
        if not medians:
            return None
        nearest = min(medians, key=lambda one: medians[one])
        if place in medians and medians[nearest] >= CLEARLY_NEARER * medians[place]:
            return place
        return nearest

    def _is_given_up(self, region: str) -> bool:
        found = self._regions.get(region)
        return found is not None and found.silent_count >= SILENT_MIN

    def _counting(self, region: str, now_s: float) -> list[float]:
        found = self._regions.get(region)
        if found is None:
            return []
        return [took_s for at_s, took_s in found.trips if at_s + KEPT_S > now_s]
