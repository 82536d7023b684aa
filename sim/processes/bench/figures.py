"""Figures of a benchmark: each a value with its unit and, where there is one, its floor."""

from collections import Counter

import attrs
from hdrh.histogram import HdrHistogram

HIGHEST_US = 300_000_000

_STEPS_PER_S = 100_000


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
    """A figure rounded to four digits, with its ratio to the floor."""
    return Figure(
        name=name,
        value=_rounded(value),
        unit=unit,
        floor=None if floor is None else _rounded(floor),
        ratio=None if not floor else round(value / floor, 3),
        goal=goal,
    )


class LatencyHistogram:
    """Latencies of appends, from call to answer, in an HDR histogram of three digits.

    During the load it only counts, in steps of 10 µs: the histogram itself would slow a writer
    of a hundred thousand records per second.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, latency_s: float) -> None:
        """Record the latency of one append."""
        self._counts[int(latency_s * _STEPS_PER_S)] += 1

    def add(self, other: "LatencyHistogram") -> None:
        """Count the latencies of another histogram, too."""
        self._counts.update(other._counts)  # noqa: SLF001 - its own class.

    def _histogram(self) -> HdrHistogram:
        histogram = HdrHistogram(1, HIGHEST_US, 3)
        for step, count in self._counts.items():
            latency_us = max(1, round(step * 1e6 / _STEPS_PER_S))
            histogram.record_value(min(HIGHEST_US, latency_us), count)
        return histogram

    def milliseconds(self, percentile: float) -> float:
        """The latency at a percentile."""
        return float(self._histogram().get_value_at_percentile(percentile)) / 1e3

    def figures(
        self,
        name: str,
        *,
        p50_floor_ms: float | None = None,
        p50_goal: str | None = None,
        p99_floor_ms: float | None = None,
        p99_goal: str | None = None,
    ) -> list[Figure]:
        """p50, p99, p99.9 and the maximum."""
        histogram = self._histogram()

        def milliseconds(percentile: float) -> float:
            return float(histogram.get_value_at_percentile(percentile)) / 1e3

        return [
            figure(f"{name} p50", milliseconds(50), "ms", floor=p50_floor_ms, goal=p50_goal),
            figure(f"{name} p99", milliseconds(99), "ms", floor=p99_floor_ms, goal=p99_goal),
            figure(f"{name} p99.9", milliseconds(99.9), "ms"),
            figure(f"{name} max", milliseconds(100), "ms"),
        ]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
