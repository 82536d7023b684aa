"""How long something takes, in powers of two: cheap to note, good enough for a status page."""

import attrs

_BUCKETS_COUNT = 40


@attrs.frozen
class DurationStatistics:
    """Percentiles, each at most twice the true one, and the exact highest."""

    count: int
    p50_s: float
    p99_s: float
    max_s: float


class Durations:
    """Counts of durations, by the power of two of their microseconds."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS_COUNT
        self._max_s = 0.0

    def note(self, duration_s: float) -> None:
        """Count one."""
        microseconds = int(duration_s * 1e6)
        self._counts[min(microseconds.bit_length(), _BUCKETS_COUNT - 1)] += 1
        self._max_s = max(self._max_s, duration_s)

    def statistics(self) -> DurationStatistics:
        """Since the start."""
        return DurationStatistics(
            sum(self._counts), self._percentile(0.5), self._percentile(0.99), self._max_s
        )

    def _percentile(self, part: float) -> float:
        """Upper end of the bucket in which that part of all durations ends."""
        wanted = part * sum(self._counts)
        reached = 0
        for power, count in enumerate(self._counts):
            reached += count
            if count and reached >= wanted:
                return min(float(2**power) / 1e6, self._max_s)
        return 0.0
