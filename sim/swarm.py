"""Many seeds, one after the other or in several processes, and what they covered together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice, takewhile

import attrs

from sim.laws.sometimes import SOMETIMES
from sim.world.faults import FAULTS
from sim.world.history_laws import Violation
from sim.world.run import SimReport, run_seed
from sim.world.trace import EVENTS

_SEEDS_AHEAD = 2
"""Seeds given to each process before it has finished the one it runs."""


@attrs.define(kw_only=True)
class SwarmReport:
    """What came of the seeds that have been run."""

    seeds_count: int = 0
    simulated_s: float = 0.0
    acknowledged: int = 0
    reads: int = 0
    events: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)
    """How often each kind of fault struck."""
    sometimes: Counter[str] = attrs.field(factory=Counter)
    """Under how many seeds what must happen sometimes, and each event of the trace, did."""
    violations: list[Violation] = attrs.field(factory=list)

    @property
    def faults_never_struck(self) -> list[str]:
        """Kinds of faults that nothing was tried with."""
        return sorted(set(FAULTS) - set(self.faults))

    @property
    def never(self) -> list[str]:
        """What must happen sometimes, and never did."""
        return sorted({*SOMETIMES, *EVENTS} - set(self.sometimes) - {"violation"})

    def add(self, report: SimReport) -> None:
        """One more seed was run."""
        self.seeds_count += 1
        self.simulated_s += report.simulated_s
        self.acknowledged += report.acknowledged
        self.reads += report.reads
        self.events += report.events
        self.faults.update(report.faults)
        self.sometimes.update(report.sometimes)
        self.violations += report.violations


def run_swarm(
    seeds: Iterable[int],
    *,
    jobs: int,
    on_seed: Callable[[SwarmReport], None],
    is_time_over: Callable[[], bool] = lambda: False,
) -> SwarmReport:
    """Run all seeds, or those that are begun before the time is over.

    `on_seed` is told after each.
    """
    total = SwarmReport()
    for report in _reports(takewhile(lambda _: not is_time_over(), seeds), jobs):
        total.add(report)
        on_seed(total)
    return total


def _reports(seeds: Iterable[int], jobs: int) -> Iterator[SimReport]:
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(run_seed, seed) for seed in islice(left, _SEEDS_AHEAD * jobs)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            running.update(pool.submit(run_seed, seed) for seed in islice(left, 1))
            yield done.result()
