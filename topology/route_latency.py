"""Observed latencies of routes, as percentiles over the last seconds: pure.

A route is a replica as this process sees it, named by its instance id. Each has two HDR
histograms that alternate: one takes the answers of this period, the other keeps those of the
last one. Together they hold the last `PERIOD_S` to `2 * PERIOD_S` seconds. To note an answer
costs a microsecond. To compute a percentile costs a hundred times that, so each is computed at
most once in `REREAD_S` and remembered in between.

Rules: PROTOCOL R20.
"""

import attrs
from hdrh.histogram import HdrHistogram

PERIOD_S = 10.0
"""How long one histogram takes answers."""

REREAD_S = 2.0
"""How long a computed percentile is used."""

ANSWERS_MIN = 8
"""Answers within the window that make a percentile known; fewer say too little."""

ROUTES_MAX = 512
"""How many routes to remember; beyond it the one unused for longest is forgotten."""

_HIGHEST_US = 60_000_000
"""Longer answers count as this long: a minute."""

_DIGITS = 2
_COUNTER_BYTES = 4


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, _HIGHEST_US, _DIGITS, word_size=_COUNTER_BYTES)


@attrs.define(eq=False)
class _Route:
    """The answers of one route.

    Invariant: `now` holds answers since `began_s`; `before` those of the period before it.
    """

    began_s: float
    now: HdrHistogram = attrs.field(factory=_histogram)
    before: HdrHistogram | None = None
    known: dict[float, float] = attrs.field(factory=dict)
    """Percentiles in seconds, as computed at `known_s`."""
    known_s: float = 0.0

    def turn(self, now_s: float) -> None:
        """Drop what has left the window. Call only when the period is over."""
        is_next = now_s < self.began_s + 2 * PERIOD_S
        self.before = self.now if is_next else None
        self.now = _histogram()
        # Periods follow each other without gaps while answers come.
        self.began_s = self.began_s + PERIOD_S if is_next else now_s
        self.known.clear()

    def count(self) -> int:
        """Number of answers in the window."""
        before = self.before
        return int(self.now.total_count) + (0 if before is None else before.total_count)

    def computed_s(self, percentile: float) -> float | None:
        """The percentile of the window; None if it holds too few answers."""
        if self.count() < ANSWERS_MIN:
            return None
        both = _histogram()
        both.add(self.now)
        if self.before is not None:
            both.add(self.before)
        return float(both.get_value_at_percentile(percentile)) / 1e6


@attrs.define(eq=False)
class RouteLatencies:
    """Latencies of the routes of a process, bounded in number and in age."""

    routes_max: int = ROUTES_MAX
    _routes: dict[str, _Route] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._routes)

    def note(self, route: str, took_s: float, now_s: float) -> None:
        """Count one answer of this route."""
        found = self._routes.get(route)
        if found is None:
            found = self._begun(route, now_s)
        elif now_s >= found.began_s + PERIOD_S:
            found.turn(now_s)
            # Behind all others once a period: the first is unused longest.
            self._routes[route] = self._routes.pop(route)
        found.now.record_value(min(int(took_s * 1e6), _HIGHEST_US))

    def percentile_s(self, route: str, percentile: float, now_s: float) -> float | None:
        """This percentile (0 to 100) of the route's latency; None if too little is known.

        It may be `REREAD_S` old, and is within 1 % of the true value.
        """
        found = self._routes.get(route)
        if found is None:
            return None
        if now_s >= found.began_s + PERIOD_S:
            found.turn(now_s)
        if now_s >= found.known_s + REREAD_S:
            found.known.clear()
        known_s = found.known.get(percentile)
        if known_s is None:
            known_s = found.computed_s(percentile)
            if known_s is not None:
                if not found.known:
                    found.known_s = now_s
                found.known[percentile] = known_s
        return known_s

    def median_s(self, route: str, now_s: float) -> float | None:
        """Median latency of the route; None if too little is known."""
        return self.percentile_s(route, 50.0, now_s)

    def count(self, route: str, now_s: float) -> int:
        """Number of the route's answers in the window."""
        found = self._routes.get(route)
        if found is None:
            return 0
        if now_s >= found.began_s + PERIOD_S:
            found.turn(now_s)
        return found.count()

    def _begun(self, route: str, now_s: float) -> _Route:
        if len(self._routes) >= self.routes_max:
            del self._routes[next(iter(self._routes))]
        begun = self._routes[route] = _Route(now_s)
        return begun
