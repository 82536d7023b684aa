"""Figures of a benchmark: each a value with its unit, beside its floor where it has one."""

import attrs
from hdrh.histogram import HdrHistogram

HIGHEST_US = 300_000_000


@attrs.frozen(kw_only=True)
class Figure:
    """One figure."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    """Value divided by floor."""
    goal: str | None = None


def figure(
    name: str, value: float, unit: str, *, floor: float | None = None, goal: str | None = None
) -> Figure:
    """A figure, rounded to what was measured, with its ratio to the floor."""
    return Figure(
        name=name,
        value=_rounded(value),
        unit=unit,
        floor=None if floor is None else _rounded(floor),
        ratio=None if not floor else round(value / floor, 3),
        goal=goal,
    )


class LatencyHistogram:
    """Times of appends, from the call to the answer, in an HDR histogram of three digits."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, HIGHEST_US, 3)

    def record(self, latency_s: float, count: int = 1) -> None:
        """`count` appends took that long."""
        self._histogram.record_value(min(HIGHEST_US, max(1, round(latency_s * 1e6))), count)

    def milliseconds(self, percentile: float) -> float:
        """The latency that so many percent do not exceed."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e3

    def figures(
        self, name: str, *, p50_floor_ms: float | None = None, p50_goal: str | None = None
    ) -> list[Figure]:
        """p50, p99, p99.9 and the maximum."""
        return [
            figure(
                f"{name} p50", self.milliseconds(50), "ms", floor=p50_floor_ms, goal=p50_goal
            ),
            figure(f"{name} p99", self.milliseconds(99), "ms"),
            figure(f"{name} p99.9", self.milliseconds(99.9), "ms"),
            figure(f"{name} max", self.milliseconds(100), "ms"),
        ]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
