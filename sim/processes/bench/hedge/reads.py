"""Reads of one policy in one scenario: when each began, how long it took, what it cost."""

from collections.abc import Sequence

import attrs

from sim.processes.bench.figures import LatencyHistogram


@attrs.frozen
class CostSample:
    """Requests of one policy up to a moment."""

    at_s: float
    asked_count: int
    """Reads, each of which sends one request at least."""
    extra_counts: tuple[int, ...]
    """Extra requests: the second of a read, the third, and so on."""

    def since(self, before: "CostSample") -> "CostSample":
        """Requests after an earlier moment."""
        width = max(len(self.extra_counts), len(before.extra_counts))
        return CostSample(
            self.at_s,
            self.asked_count - before.asked_count,
            tuple(self.extra(place) - before.extra(place) for place in range(width)),
        )

    def extra(self, place: int) -> int:
        """Extra requests with this place, from 0."""
        return self.extra_counts[place] if place < len(self.extra_counts) else 0

    @property
    def extra_share(self) -> float:
        """Extra requests, as a share of reads."""
        return sum(self.extra_counts) / max(1, self.asked_count)

    @property
    def shares(self) -> list[float]:
        """The share of reads that sent a second request, a third, and so on."""
        return [count / max(1, self.asked_count) for count in self.extra_counts]


@attrs.frozen
class PolicyReads:
    """All reads of one policy in one scenario. Times count from its beginning."""

    begun_s: Sequence[float]
    took_s: Sequence[float]
    """Of each read; of one that failed or was given up, how long that took."""
    failed_count: int
    costs: Sequence[CostSample]
    """From the beginning to the end, about two a second."""

    def between(self, from_s: float, to_s: float) -> "PolicyReads":
        """The reads that began in this time, and the cost samples of it."""
        kept = [
            (begun_s, took_s)
            for begun_s, took_s in zip(self.begun_s, self.took_s, strict=True)
            if from_s <= begun_s < to_s
        ]
        return PolicyReads(
            [begun_s for begun_s, _ in kept],
            [took_s for _, took_s in kept],
            self.failed_count,
            [sample for sample in self.costs if from_s <= sample.at_s < to_s],
        )

    def milliseconds(self, percentile: float) -> float:
        """The latency at a percentile."""
        return self.latencies().milliseconds(percentile)

    def latencies(self) -> LatencyHistogram:
        """All latencies."""
        histogram = LatencyHistogram()
        for took_s in self.took_s:
            histogram.record(took_s)
        return histogram

    @property
    def cost(self) -> CostSample:
        """Requests from the first sample to the last."""
        return self.costs[-1].since(self.costs[0]) if self.costs else CostSample(0.0, 0, ())
