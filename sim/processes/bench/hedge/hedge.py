"""Measures what a late replica costs a reader: hedged, not hedged, and as BookKeeper does it.

One run, five scenarios one after the other: all is well; one of two near replicas stalls now
and then; the reader's region is cut off; a node is paused; every node is slow. All policies
read at the same time at the same rate, so that each is compared with the others as they were
then.
"""

import math
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs
import trio

from geolog.protocol.hedge_budget import HedgeBudgetConfig
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.hedge.cases import CASES
from sim.processes.bench.hedge.hedge_site import HedgeSite
from sim.processes.bench.hedge.latency_plot import latency_svg
from sim.processes.bench.hedge.node_front import FrontConditions
from sim.processes.bench.hedge.reader_process import POLICIES, ReadRun
from sim.processes.bench.hedge.reads import PolicyReads

HEDGED, BASELINES = "auto", ("off", "bookkeeper")

STALLS = FrontConditions(stall_rate=0.01, stall_s=0.5)
SLOW_S = 0.1

WELL_AGAIN_S = 10.0
"""How long after a pause begins reads must be fast again."""

_LEAD_S = 2.0
"""Time before a fault, in its scenario."""

_SETTLED_S = 2.0
"""How long after a cut reads are expected to come from the next region at once."""

_BLOCK_S = 1.0

_FIRST_DELAY_MEDIANS = 8.0
"""The first delay of the default policy is at most this many medians (PROTOCOL R17)."""


@attrs.frozen(kw_only=True)
class HedgeLoad:
    """Reads of one run."""

    rate_per_s: float
    """Of each policy."""
    duration_s: float
    """Of all scenarios together."""


@attrs.frozen
class StageShare:
    """How often the n-th request of a read was sent."""

    scenario: str
    policy: str
    request: int
    share: float
    """Of all reads."""
    before: float | None
    """The same share of the request before it, divided by this one; None if there was none."""


@attrs.frozen(kw_only=True)
class ReadLatencies:
    """The reads of one policy in one scenario, from the fault on."""

    scenario: str
    policy: str
    reads: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    extra_percent: float
    """Extra requests, as a share of reads."""
    failed: int

    @classmethod
    def of(cls, scenario: str, policy: str, reads: PolicyReads) -> "ReadLatencies":
        """The row of these reads."""
        latencies = reads.latencies()
        return cls(
            scenario=scenario,
            policy=policy,
            reads=len(reads.took_s),
            p50_ms=latencies.milliseconds(50),
            p99_ms=latencies.milliseconds(99),
            p999_ms=latencies.milliseconds(99.9),
            max_ms=latencies.milliseconds(100),
            extra_percent=round(100 * reads.cost.extra_share, 2),
            failed=reads.failed_count,
        )

    @property
    def figures(self) -> list[Figure]:
        """The same as figures."""
        name = f"{self.scenario}, {self.policy}:"
        return [
            figure(f"{name} p50", self.p50_ms, "ms"),
            figure(f"{name} p99", self.p99_ms, "ms"),
            figure(f"{name} p99.9", self.p999_ms, "ms"),
            figure(f"{name} extra requests", self.extra_percent, "%"),
            figure(f"{name} failed reads", self.failed, "reads"),
        ]


@attrs.frozen
class HedgeReport:
    """Everything that the run showed."""

    latencies: list[ReadLatencies]
    figures: list[Figure]
    stages: list[StageShare]
    reads: dict[str, dict[str, PolicyReads]]
    """By scenario and policy, from the fault on."""

    def document(self) -> dict[str, object]:
        """The report without the single reads."""
        return {"figures": self.figures, "latencies": self.latencies, "stages": self.stages}

    def svg(self) -> str:
        """A plot of the latencies of all scenarios."""
        distributions = {
            scenario: {policy: reads.took_s for policy, reads in of_policies.items()}
            for scenario, of_policies in self.reads.items()
        }
        return latency_svg("Share of reads that take at least this long", distributions)


@attrs.frozen(kw_only=True)
class _Scenario:
    """One scenario: its share of the time, and what disturbs it while it runs."""

    name: str
    share: float
    is_counted: bool = True
    disturb: Callable[[HedgeSite], Awaitable[None]] | None = None
    """Called after the lead; for a scenario that is disturbed from the beginning, before."""
    is_disturbed_throughout: bool = False
    mend: Callable[[HedgeSite], Awaitable[None]] | None = None


async def _stall_one(site: HedgeSite) -> None:
    await site.disturb(site.near_nodes[:1], STALLS)


async def _cut_near(site: HedgeSite) -> None:
    await site.disturb(site.near_nodes, FrontConditions(is_cut=True))


async def _pause_one(site: HedgeSite) -> None:
    await site.cluster.pause(site.near_nodes[0].name)


async def _resume_one(site: HedgeSite) -> None:
    await site.cluster.resume(site.near_nodes[0].name)


async def _slow_all(site: HedgeSite) -> None:
    await site.disturb(site.all_nodes, FrontConditions(delay_s=SLOW_S))


async def _let_be(site: HedgeSite) -> None:
    await site.disturb(site.all_nodes, FrontConditions())


_SCENARIOS = (
    _Scenario(name="warm-up", share=4, is_counted=False),
    _Scenario(name="healthy", share=20),
    _Scenario(
        name="stalls",
        share=26,
        disturb=_stall_one,
        is_disturbed_throughout=True,
        mend=_let_be,
    ),
    _Scenario(name="rest", share=3, is_counted=False),
    _Scenario(name="cut off", share=12, disturb=_cut_near, mend=_let_be),
    _Scenario(name="rest", share=5, is_counted=False),
    _Scenario(name="paused", share=18, disturb=_pause_one, mend=_resume_one),
    _Scenario(name="rest", share=3, is_counted=False),
    _Scenario(name="all slow", share=13, disturb=_slow_all, mend=_let_be),
)


HEALTHY = "healthy"

assert {one.name for one in _SCENARIOS if one.is_counted} == {HEALTHY, *CASES}


async def measure_hedge(
    site: HedgeSite, load: HedgeLoad, *, only: str | None = None, tell: Callable[[str], None]
) -> HedgeReport:
    """Run all scenarios; or only this one, and the healthy one that it is compared with.

    `only` is one of `CASES`, which then takes as long as in a run of all.
    """
    total = sum(each.share for each in _SCENARIOS)
    reads: dict[str, dict[str, PolicyReads]] = {}
    disturbed_s: dict[str, float] = {}
    for scenario in _SCENARIOS if only is None else _alone(only):
        run = ReadRun(load.duration_s * scenario.share / total, load.rate_per_s)
        if scenario.is_counted:
            tell(f"{scenario.name}: {run.duration_s:.0f} s")
        found, at_s = await _run_scenario(site, scenario, run)
        if scenario.is_counted:
            reads[scenario.name], disturbed_s[scenario.name] = found, at_s
    return report_of(
        reads, disturbed_s, round_trip_s=site.round_trip_s, rate_per_s=load.rate_per_s
    )


def _alone(name: str) -> list[_Scenario]:
    """The warm-up, the healthy scenario, and this one."""
    return [one for one in _SCENARIOS if one.name in ("warm-up", HEALTHY, name)]


def report_of(
    reads: dict[str, dict[str, PolicyReads]],
    disturbed_s: dict[str, float],
    *,
    round_trip_s: float,
    rate_per_s: float,
) -> HedgeReport:
    """The report of these reads, by scenario and policy; and when each fault began.

    The healthy scenario has to be among them.
    """
    disturbed = {
        scenario: {
            policy: each.between(disturbed_s[scenario], math.inf)
            for policy, each in of_policies.items()
        }
        for scenario, of_policies in reads.items()
    }
    latencies = [
        ReadLatencies.of(scenario, policy, each)
        for scenario, of_policies in disturbed.items()
        for policy, each in of_policies.items()
    ]
    healthy = reads[HEALTHY][HEDGED]
    figures = [one for row in latencies for one in row.figures]
    for scenario, of_policies in reads.items():
        at_s = disturbed_s[scenario]
        match scenario:
            case "stalls":
                figures += _stall_figures(of_policies, reads[HEALTHY])
            case "cut off":
                figures += _cut_figures(of_policies, healthy, at_s, round_trip_s)
            case "paused":
                figures += _pause_figures(of_policies, healthy, at_s, rate_per_s)
            case "all slow":
                figures += _load_figures(of_policies, at_s, rate_per_s)
            case _:
                assert scenario == HEALTHY
    return HedgeReport(latencies, figures, list(_stages(reads[HEALTHY])), disturbed)


async def _run_scenario(
    site: HedgeSite, scenario: _Scenario, run: ReadRun
) -> tuple[dict[str, PolicyReads], float]:
    """The reads of each policy, and when the fault began, since the first."""
    found: dict[str, PolicyReads] = {}
    begun_s, at_s = trio.current_time(), 0.0

    async def read() -> None:
        found.update(await site.reader.read(run))

    if scenario.is_disturbed_throughout and scenario.disturb is not None:
        await scenario.disturb(site)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        if scenario.disturb is not None and not scenario.is_disturbed_throughout:
            await trio.sleep(min(_LEAD_S, run.duration_s / 4))
            at_s = trio.current_time() - begun_s
            await scenario.disturb(site)
    if scenario.mend is not None:
        await scenario.mend(site)
    return found, at_s


def _stall_figures(
    stalls: dict[str, PolicyReads], healthy: dict[str, PolicyReads]
) -> Iterator[Figure]:
    hedged_ms = stalls[HEDGED].milliseconds(99.9)
    for policy in BASELINES:
        yield figure(
            f"stalls: p99.9 of {policy} against {HEDGED}",
            stalls[policy].milliseconds(99.9) / hedged_ms,
            "times",
            goal=">= 20" if policy == "off" else None,
        )
    yield figure(
        "stalls: extra requests", 100 * stalls[HEDGED].cost.extra_share, "%", goal="<= 5 %"
    )
    for scenario, reads in (("healthy", healthy), ("stalls", stalls)):
        difference_ms, interval_ms = _median_difference(reads[HEDGED], reads["off"])
        yield figure(
            f"{scenario}: p50 of {HEDGED} minus off",
            difference_ms,
            "ms",
            goal=f"0 within +-{interval_ms:.3f}",
        )


def _cut_figures(
    cut: dict[str, PolicyReads], healthy: PolicyReads, at_s: float, round_trip_s: float
) -> Iterator[Figure]:
    first_delay_ms = max(
        1.0,
        min(healthy.milliseconds(98), _FIRST_DELAY_MEDIANS * healthy.milliseconds(50)),
    )
    floor_ms = round_trip_s * 1e3 + first_delay_ms
    yield figure("healthy: first delay", first_delay_ms, "ms")
    for policy in POLICIES:
        after = cut[policy].between(at_s, math.inf)
        yield figure(
            f"cut off: p99 of {policy}",
            after.milliseconds(99),
            "ms",
            floor=floor_ms,
            goal=f"<= {floor_ms + 5:.1f} ms" if policy == HEDGED else None,
        )
        settled = cut[policy].between(at_s + _SETTLED_S, math.inf)
        yield figure(
            f"cut off: p99 of {policy} from {_SETTLED_S:g} s on",
            settled.milliseconds(99),
            "ms",
            floor=floor_ms,
        )


def _pause_figures(
    paused: dict[str, PolicyReads], healthy: PolicyReads, at_s: float, rate_per_s: float
) -> Iterator[Figure]:
    healthy_ms = healthy.milliseconds(99)
    for policy in POLICIES:
        later = paused[policy].between(at_s + WELL_AGAIN_S, math.inf)
        if later.took_s:
            yield figure(
                f"paused: p99 of {policy} from {WELL_AGAIN_S:g} s on",
                later.milliseconds(99),
                "ms",
                floor=healthy_ms,
                goal="<= 2 x healthy" if policy == HEDGED else None,
            )
    yield figure(
        f"paused: p99 of {HEDGED} is <= 2 x healthy after",
        _well_again_after_s(paused[HEDGED], 2 * healthy_ms, at_s),
        "s",
        goal=f"<= {WELL_AGAIN_S:g} s",
    )
    later = paused[HEDGED].between(at_s + WELL_AGAIN_S, math.inf)
    if len(later.costs) > 1:
        yield figure(
            f"paused: extra requests from {WELL_AGAIN_S:g} s on",
            100 * later.cost.extra_share,
            "%",
            goal=_budget_goal(rate_per_s),
        )


def _load_figures(
    slow: dict[str, PolicyReads], at_s: float, rate_per_s: float
) -> Iterator[Figure]:
    for policy in POLICIES:
        yield figure(
            f"all slow: extra requests of {policy}",
            100 * slow[policy].between(at_s, math.inf).cost.extra_share,
            "%",
            goal=_budget_goal(rate_per_s) if policy == HEDGED else None,
        )


def _budget_goal(rate_per_s: float) -> str:
    """Extra requests that the budget allows at this rate, as a share of reads.

    The floor of the budget counts on top, because the window of a scenario may begin with what
    was saved before it.
    """
    budget = HedgeBudgetConfig()
    share, floor_per_s = budget.requests_share, budget.requests_per_s
    allowed = 100 * (share + floor_per_s / rate_per_s)
    return f"<= {allowed:g} % ({100 * share:g} % + {floor_per_s:g}/s)"


def _well_again_after_s(reads: PolicyReads, bound_ms: float, at_s: float) -> float:
    """When the last second began in which more than one read of a hundred was slower."""
    well_s = at_s
    end_s = max(reads.begun_s, default=at_s)
    from_s = at_s
    while from_s < end_s:
        second = reads.between(from_s, from_s + _BLOCK_S)
        slow_count = sum(1 for took_s in second.took_s if took_s * 1e3 > bound_ms)
        if slow_count > max(1, len(second.took_s) // 100):
            well_s = from_s + _BLOCK_S
        from_s += _BLOCK_S
    return well_s - at_s


def _median_difference(one: PolicyReads, other: PolicyReads) -> tuple[float, float]:
    """How much larger the median of `one` is, and half the 95 % interval; in milliseconds.

    Both are compared second by second, because the machine has faster and slower ones.
    """
    from_s = min(one.begun_s[0], other.begun_s[0])
    end_s = min(max(one.begun_s), max(other.begun_s))
    differences_ms: list[float] = []
    while from_s + _BLOCK_S <= end_s:
        block = [each.between(from_s, from_s + _BLOCK_S).took_s for each in (one, other)]
        if all(block):
            medians = [statistics.median(took_s) * 1e3 for took_s in block]
            differences_ms.append(medians[0] - medians[1])
        from_s += _BLOCK_S
    if len(differences_ms) < 2:
        return 0.0, math.inf
    deviation = statistics.stdev(differences_ms) / math.sqrt(len(differences_ms))
    return statistics.mean(differences_ms), 1.96 * deviation


def _stages(healthy: dict[str, PolicyReads]) -> Iterator[StageShare]:
    for policy in POLICIES:
        shares: Sequence[float] = [1.0, *healthy[policy].cost.shares]
        for place, share in enumerate(shares):
            before = shares[place - 1] / share if place and share else None
            yield StageShare("healthy", policy, place + 1, share, before)
