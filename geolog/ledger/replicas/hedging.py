"""Hedging of the questions of a process: its policy, its budget, and what came of it."""

import enum
from bisect import bisect_left
from collections import Counter, defaultdict

import attrs

from geolog.protocol.hedge_budget import HedgeBudget, HedgeBudgetConfig
from geolog.protocol.hedge_policy import AUTO, HedgePolicy

NEWEST_SHARE = 0.1
"""Weight of the newest answer in the size that the next is expected to have."""


class ExtraReason(enum.Enum):
    """Cause of an extra request."""

    LATE = "late"
    """The replica asked before had not answered; the budget allowed one more."""
    REPLACEMENT = "replacement"
    """All replicas that were asked had been demoted meanwhile."""
    SILENT = "silent"
    """The one that finds out whether a replica hangs; there was no budget."""
    TRIAL = "trial"
    """A demoted replica is tried at the side of a good one."""


@attrs.frozen(kw_only=True)
class ReadStatistics:
    """Questions to replicas so far, and how they were hedged."""

    asked_count: int
    """Questions: reads of entries, and small ones about the end of a ledger."""
    hedged_count: dict[int, int]
    """Extra requests, by their number within a question, from 1."""
    extra_count: dict[str, int]
    """The same, by reason."""
    won_count: int
    """Questions that an extra request answered first."""
    refused_count: int
    """Extra requests that there was no budget for."""
    failed_count: int
    """Requests that a replica refused, could not answer, or left unanswered."""
    late_count: int
    """Questions that took longer than the limit of `sla:…`."""
    damaged_count: dict[str, int]
    """Damaged copies that were read, by node id."""
    bytes_count: int
    """Bytes of entries that were read."""
    extra_bytes_count: int
    """Expected bytes of the answers to extra requests."""

    @property
    def extra_share(self) -> float:
        """Extra requests, as a share of questions."""
        return sum(self.hedged_count.values()) / max(1, self.asked_count)


DURATION_BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the buckets of durations; the last bucket has none."""


class ServedReads:
    """Reads that replicas of one region served to this process."""

    def __init__(self) -> None:
        self.by_duration = [0] * (len(DURATION_BOUNDS_S) + 1)
        """Those by bucket of the time that their reader waited."""
        self.duration_s_sum = 0.0
        self.won_count = 0
        """Those that an extra request brought."""

    def __repr__(self) -> str:
        return f"ServedReads({sum(self.by_duration)}, {self.won_count} by extra requests)"

    def note(self, took_s: float, *, is_hedged: bool) -> None:
        """Count one."""
        self.by_duration[bisect_left(DURATION_BOUNDS_S, took_s)] += 1
        self.duration_s_sum += took_s
        self.won_count += is_hedged


@attrs.define(eq=False)
class HedgeRecord:
    """The budget of a process, and its counts; all readers share one."""

    budget: HedgeBudget = attrs.field(factory=lambda: HedgeBudget(HedgeBudgetConfig()))
    asked_count: int = 0
    hedged_count: Counter[int] = attrs.field(factory=Counter)
    extra_count: Counter[ExtraReason] = attrs.field(factory=Counter)
    won_count: int = 0
    failed_count: int = 0
    late_count: int = 0
    damaged_count: Counter[str] = attrs.field(factory=Counter)
    bytes_count: int = 0
    extra_bytes_count: int = 0
    served: defaultdict[str, ServedReads] = attrs.field(
        factory=lambda: defaultdict(ServedReads)
    )
    """Reads by the region of the replica that served them."""
    _expected_bytes: float = 0.0
    _bytes_earned: int = 0  # Of `bytes_count`, those that the budget knows.

    def note_first(self, now_s: float) -> None:
        """Count a question whose first request goes out."""
        self.asked_count += 1
        self.budget.on_first_request(now_s)
        if self.bytes_count > self._bytes_earned:
            self.budget.on_bytes(self.bytes_count - self._bytes_earned, now_s)
            self._bytes_earned = self.bytes_count

    def take(self, stage: int, now_s: float, *, is_remote: bool, is_budgeted: bool) -> bool:
        """Whether a late question may go further; if so, it is counted."""
        expected_bytes = round(self._expected_bytes)
        if is_budgeted and not self.budget.take(
            now_s, remote_bytes=expected_bytes if is_remote else 0
        ):
            return False
        self.add(stage, ExtraReason.LATE)
        return True

    def add(self, stage: int, reason: ExtraReason) -> None:
        """Count an extra request that goes out."""
        self.hedged_count[stage] += 1
        self.extra_count[reason] += 1
        self.extra_bytes_count += round(self._expected_bytes)

    def note_bytes(self, size_bytes: int) -> None:
        """Count the bytes of an answer."""
        self.bytes_count += size_bytes
        self._expected_bytes += NEWEST_SHARE * (size_bytes - self._expected_bytes)

    def statistics(self) -> ReadStatistics:
        """All counts now."""
        return ReadStatistics(
            asked_count=self.asked_count,
            hedged_count=dict(sorted(dict(self.hedged_count).items())),
            extra_count={reason.value: self.extra_count[reason] for reason in ExtraReason},
            won_count=self.won_count,
            refused_count=self.budget.refused_count,
            failed_count=self.failed_count,
            late_count=self.late_count,
            damaged_count=dict(sorted(dict(self.damaged_count).items())),
            bytes_count=self.bytes_count,
            extra_bytes_count=self.extra_bytes_count,
        )


@attrs.frozen(eq=False)
class Hedging:
    """A policy, and what all policies of the process share."""

    policy: HedgePolicy = AUTO
    record: HedgeRecord = attrs.field(factory=HedgeRecord)
