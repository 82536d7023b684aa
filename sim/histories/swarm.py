"""Many seeds, one after the other or in several processes, and their joint coverage."""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from itertools import islice, takewhile

import attrs

from sim.histories.run import SimReport, run_seed
from sim.laws.history.all_laws import Violation
from sim.laws.sometimes import SOMETIMES
from sim.world.faults.all_faults import FAULTS
from sim.world.trace import EVENTS

_SEEDS_AHEAD = 2
"""Seeds queued for each process besides the one that it runs."""


@attrs.define(kw_only=True)
class SwarmReport:
    """The results of the seeds run so far."""

    seeds_count: int = 0
    simulated_s: float = 0.0
    acknowledged: int = 0
    reads: int = 0
    events: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)
    """How often each kind of fault struck."""
    sometimes: Counter[str] = attrs.field(factory=Counter)
    """Under how many seeds each event of the trace, and each name of `SOMETIMES`, happened."""
    violations: list[Violation] = attrs.field(factory=list)

    @property
    def faults_never_struck(self) -> list[str]:
        """Kinds of faults that never struck."""
        return sorted(set(FAULTS) - set(self.faults))

    @property
    def never(self) -> list[str]:
        """Events that must happen sometimes, and never did."""
        return sorted({*SOMETIMES, *EVENTS} - set(self.sometimes) - {"violation"})

    def add(self, report: SimReport) -> None:
        """Add the report of one more seed."""
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
    world: str | None = None,
    on_seed: Callable[[SwarmReport], None],
    is_time_over: Callable[[], bool] = lambda: False,
) -> SwarmReport:
    """Run all seeds, or those that start before the time is over.

    `world`: the kind of worlds that they draw, of `WORLDS`; all kinds if it is None.
    `on_seed` is called after each seed. An error from it, or Ctrl-C, ends the running
    histories.
    """
    total = SwarmReport()
    in_time = takewhile(lambda _: not is_time_over(), seeds)
    with closing(_reports(in_time, jobs, partial(run_seed, world=world))) as reports:
        for report in reports:
            total.add(report)
            on_seed(total)
    return total


def _reports(
    seeds: Iterable[int], jobs: int, run: Callable[[int], SimReport]
) -> Generator[SimReport, None, None]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(jobs, initializer=_leave_signals_to_parent) as pool:
        try:
            running = {pool.submit(run, seed) for seed in islice(left, _SEEDS_AHEAD * jobs)}
            while running:
                done = next(as_completed(running))
                running.remove(done)
                running.update(pool.submit(run, seed) for seed in islice(left, 1))
                yield done.result()
        except (GeneratorExit, KeyboardInterrupt):
            # An interrupted swarm does not wait for the histories that are running.
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _leave_signals_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
