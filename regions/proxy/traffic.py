"""Counts of all that a proxy has done for its clients since it began, in plain numbers.

Sessions count here on every append, so nothing here is looked up, locked or allocated. The HTTP
port makes metrics of it when it is asked.
"""

from bisect import bisect_left
from typing import Literal

AppendOutcome = Literal["stored", "duplicate", "refused", "unknown"]

LATENCY_BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the latency's buckets; the last bucket has none."""


class AppendCounts:
    """Appends of one kind: a frame of a session, or a sealed batch."""

    def __init__(self) -> None:
        self.by_outcome: dict[AppendOutcome, int] = {
            "stored": 0,
            "duplicate": 0,
            "refused": 0,
            "unknown": 0,
        }
        self.by_latency = [0] * (len(LATENCY_BOUNDS_S) + 1)
        """Those that are in the log, by bucket of the time from arrival to answer."""
        self.latency_s_sum = 0.0

    def __repr__(self) -> str:
        return f"AppendCounts({self.by_outcome})"

    def note(self, outcome: AppendOutcome, latency_s: float) -> None:
        """Count one that is answered."""
        self.by_outcome[outcome] += 1
        if outcome == "stored" or outcome == "duplicate":
            self.by_latency[bisect_left(LATENCY_BOUNDS_S, latency_s)] += 1
            self.latency_s_sum += latency_s


class Traffic:
    """The counts of one proxy."""

    def __init__(self) -> None:
        self.frames = AppendCounts()
        """Appends of JSON and MessagePack sessions, and lines of HTTP requests."""
        self.batches = AppendCounts()
        """Batches that geolog's own clients sealed."""
        self.redirects_count = 0
        """Clients that were sent to another proxy."""

    def __repr__(self) -> str:
        return f"Traffic(frames {self.frames}, batches {self.batches})"
