"""How many seeds it takes to find a planted bug."""

from collections.abc import Iterable
from random import Random

import attrs

from sim.planted.bugs import planted
from sim.world.faults import FAULTS
from sim.world.history_laws import Violation
from sim.world.options import draw_harsh_options
from sim.world.run import run_seed


@attrs.frozen
class Found:
    """The first seed under which a planted bug broke a law."""

    seed: int
    seeds_count: int
    """Seeds that were run, this one included."""
    violations: list[Violation]


def hunt(name: str, seeds: Iterable[int]) -> Found | None:
    """Run harsh histories with the bug until one breaks a law; None when none does."""
    with planted(name):
        for count, seed in enumerate(seeds, start=1):
            options = draw_harsh_options(Random(f"{seed}/options"), tuple(FAULTS))
            report = run_seed(seed, options=options)
            if report.violations:
                return Found(seed, count, report.violations)
    return None
