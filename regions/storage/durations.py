"""Durations as percentiles, for a status page."""

import attrs
from hdrh.histogram import HdrHistogram

_HIGHEST_US = 1_000_000_000
"""Longer durations count as this long, except in `max_s`."""

_DIGITS = 2


@attrs.frozen
class DurationStatistics:
    """Percentiles, within 1 % of the true ones, and the exact maximum."""

    count: int
    p50_s: float
    p99_s: float
    max_s: float


class Durations:
    """Durations in an HDR histogram of microseconds."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _HIGHEST_US, _DIGITS)
        self._max_s = 0.0

    def note(self, duration_s: float) -> None:
        """Count one duration."""
        self._histogram.record_value(min(int(duration_s * 1e6), _HIGHEST_US))
        self._max_s = max(self._max_s, duration_s)

    def statistics(self) -> DurationStatistics:
        """Percentiles since the start."""
        p50_s, p99_s = (
            min(self._histogram.get_value_at_percentile(percent) / 1e6, self._max_s)
            for percent in (50, 99)
        )
        return DurationStatistics(self._histogram.total_count, p50_s, p99_s, self._max_s)
