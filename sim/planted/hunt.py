"""Hunts: how many histories with a planted bug it takes until one breaks a law.

A hunt runs harsh histories of small worlds. When a law is broken, the history ends and is run
again without the bug: only if that one keeps all laws is the bug found, and not another one.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import takewhile
from statistics import median

import attrs

from sim.histories.run import SimReport, run_seed
from sim.laws.history.all_laws import Violation
from sim.planted.bugs import PLANTED_BUGS, planted
from sim.world.chance import Draws
from sim.world.draws.clock_draws import with_far_clocks
from sim.world.draws.disk_draws import (
    draw_disks,
    with_damage_twice,
    with_unreadable_sectors,
)
from sim.world.draws.drawing import draw_dependent_knobs, draw_harsh_options
from sim.world.draws.named_worlds import options_of_world
from sim.world.draws.owner_draws import with_failed_writers_kept, with_sessions_lost_early
from sim.world.draws.special_worlds import with_placement_tended
from sim.world.exchange import with_region_exchanged
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options
from sim.world.stream_knobs import draw_stream_knobs

CHAOS_S = 10.0
"""How long faults strike in each history of a hunt, in simulated time."""

FAILING_OVER_S = 18.0
"""The same, where homes fail over: a failover waits several seconds for a lost home."""

SEEDS_APART = 1_000_000
"""Distance between the first seeds of hunts for one bug, so that they are independent."""


@attrs.frozen
class Catch:
    """The first seed under which a planted bug broke a law that holds without it."""

    seed: int
    seeds_count: int
    """How many seeds were run, including this one."""
    violations: list[Violation]
    processor_s: float = 0.0
    """Time of a processor that the hunt took."""


@attrs.frozen(kw_only=True)
class Hunted:
    """The results of several independent hunts for one bug."""

    name: str
    founds: Sequence[Catch]
    tries_count: int

    @property
    def is_found(self) -> bool:
        """Whether every hunt found it."""
        return len(self.founds) == self.tries_count

    @property
    def seeds_median(self) -> float:
        """The median number of seeds, over the hunts that found it."""
        return median(found.seeds_count for found in self.founds)

    @property
    def seeds_worst(self) -> int:
        """The largest number of seeds, over the hunts that found it."""
        return max(found.seeds_count for found in self.founds)

    @property
    def processor_s_median(self) -> float:
        """The median time of a processor, over the hunts that found it."""
        return median(found.processor_s for found in self.founds)

    @property
    def laws(self) -> list[str]:
        """The laws that caught it, the most frequent first; `crash` is an unexpected error."""
        return [
            law for law, _ in Counter(f.violations[0].law for f in self.founds).most_common()
        ]


def options_of_hunt(
    seed: int,
    *,
    is_of_streams: bool = False,
    is_of_placement: bool = False,
    is_of_owners: bool = False,
    is_of_clocks: bool = False,
    is_of_exchange: bool = False,
    is_of_damage: bool = False,
    made_for: Callable[[Options], Options] | None = None,
    drawn_for: Callable[[Options, Draws], Options] | None = None,
) -> Options:
    """The harsh options that the seed draws, with a chaos of `CHAOS_S`.

    The stream is plain and has no operators, unless the hunt is for a bug of streams or
    placement. Worlds made for owners, clocks, exchange or damage are drawn only for bugs of
    those.
    """
    draws = Draws(seed)
    options = draw_harsh_options(draws, tuple(FAULTS))
    if is_of_streams:
        options = attrs.evolve(options, stream=draw_stream_knobs(draws))
    options = draw_dependent_knobs(options, draws)
    if is_of_placement:
        return _for_a_hunt(with_placement_tended(options, draws))
    if is_of_owners:
        make = draws.choice("owners", (with_failed_writers_kept, with_sessions_lost_early))
        return _for_a_hunt(make(options))
    if is_of_exchange:
        return with_region_exchanged(options)
    if is_of_clocks:
        return _for_a_hunt(with_far_clocks(options))
    if is_of_damage:
        make = draws.choice("damage", (with_unreadable_sectors, with_damage_twice))
        return _for_a_hunt(make(options))
    if made_for is not None:
        return _for_a_hunt(made_for(options))
    if drawn_for is not None:
        return _for_a_hunt(drawn_for(options, draws))
    return _for_a_hunt(draw_disks(options, draws))


def _for_a_hunt(options: Options) -> Options:
    fails_over = options.knobs.failovers_rest_s_max is not None
    chaos_s = FAILING_OVER_S if fails_over else CHAOS_S
    return attrs.evolve(options, hazards=attrs.evolve(options.hazards, chaos_s=chaos_s))


def run_with(
    name: str,
    seed: int,
    *,
    world: str | None = None,
    write_line: Callable[[str], None] | None = None,
    ends_at_breach: bool = False,
) -> SimReport:
    """Run one history of a hunt, with the bug; in a kind of worlds, if one is named."""
    within = f" --world {world}" if world else ""
    with planted(name):
        return run_seed(
            seed,
            options=_options_for(name, seed, world),
            replay=f"python -P -m sim.planted {name}{within} --replay {seed}",
            write_line=write_line,
            ends_at_breach=ends_at_breach,
        )


def hunt(name: str, seeds: Iterable[int], world: str | None = None) -> Catch | None:
    """Run histories with the bug until one finds it; None if none does.

    `world` names a kind of worlds, of `WORLDS`, to hunt in, in place of those for the bug.
    """
    begun_s = _processor_s()
    for seeds_count, seed in enumerate(seeds, start=1):
        report = run_with(name, seed, world=world, ends_at_breach=True)
        if (
            report.violations
            and not run_seed(seed, options=_options_for(name, seed, world)).violations
        ):
            return Catch(seed, seeds_count, report.violations, _processor_s() - begun_s)
    return None


def _options_for(name: str, seed: int, world: str | None) -> Options:
    if world is not None:
        return options_of_world(world, seed, tuple(FAULTS))
    bug = PLANTED_BUGS[name]
    options = options_of_hunt(
        seed,
        is_of_streams=bug.is_of_streams,
        is_of_placement=bug.is_of_placement,
        is_of_owners=bug.is_of_owners,
        is_of_clocks=bug.is_of_clocks,
        is_of_exchange=bug.is_of_exchange,
        is_of_damage=bug.is_of_damage,
        made_for=bug.made_for,
        drawn_for=bug.drawn_for,
    )
    if bug.chaos_s is None:
        return options
    return attrs.evolve(options, hazards=attrs.evolve(options.hazards, chaos_s=bug.chaos_s))


def hunt_all(
    names: Iterable[str],
    *,
    tries_count: int,
    jobs: int,
    first: int = 0,
    seeds_max: int,
    hunt_s_max: float,
    world: str | None = None,
    on_hunted: Callable[[Hunted], None],
) -> None:
    """Hunt for each bug `tries_count` times, `jobs` hunts at once; report each bug once.

    The seeds of the first hunt for a bug begin at `first`.
    """
    tries = [(name, number) for name in names for number in range(tries_count)]
    founds: dict[str, list[Catch | None]] = {name: [] for name, _ in tries}
    with ProcessPoolExecutor(jobs) as pool:
        running = {
            pool.submit(
                _hunt_within, name, first + number * SEEDS_APART, seeds_max, hunt_s_max, world
            ): name
            for name, number in tries
        }
        for done in as_completed(running):
            name = running[done]
            founds[name].append(done.result())
            if len(founds[name]) == tries_count:
                found = [one for one in founds[name] if one is not None]
                on_hunted(Hunted(name=name, founds=found, tries_count=tries_count))


def table(hunted: Iterable[Hunted]) -> Iterator[str]:
    """The lines of a Markdown table, in the order of the bugs' numbers."""
    yield (
        "| bug | what is wrong | found | seeds, median | seeds, worst | processor s, median |"
        " law |"
    )
    yield "|---|---|---|---|---|---|---|"
    for one in sorted(hunted, key=lambda one: (PLANTED_BUGS[one.name].number, one.name)):
        yield f"| {_row(one)} |"


def _row(one: Hunted) -> str:
    bug = PLANTED_BUGS[one.name]
    costs = ["-", "-", "-"]
    if one.founds:
        costs = [
            f"{one.seeds_median:g}",
            f"{one.seeds_worst}",
            f"{one.processor_s_median:.0f}",
        ]
    tries = f"{len(one.founds)} of {one.tries_count}"
    cells = [f"{bug.number} `{one.name}`", bug.what, tries, *costs, ", ".join(one.laws) or "-"]
    return " | ".join(cells)


def _hunt_within(
    name: str, first: int, seeds_max: int, hunt_s_max: float, world: str | None
) -> Catch | None:
    end_s = _processor_s() + hunt_s_max
    in_time = takewhile(lambda _: _processor_s() < end_s, range(first, first + seeds_max))
    return hunt(name, in_time, world)


def _processor_s() -> float:
    """Time of a processor that this process has taken: others may share it with a hunt."""
    return time.process_time()
