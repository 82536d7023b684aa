"""Whole clusters under faults, checked by the laws: a swarm, and histories that are run twice.

The swarm runs for 60 s on two cores; `SWARM_S` sets another time. Both tests start processes
of their own, so they are part of the stage that runs alone.
"""

import os
import sys
import time

import pytest

from sim.histories.determinism import unequal_seeds
from sim.histories.swarm import SwarmReport, run_swarm
from sim.laws.sometimes import SOMETIMES
from sim.world.faults.all_faults import FAULTS
from sim.world.trace import EVENTS

_SWARM_S = float(os.environ.get("SWARM_S", "60"))
_SEEDS_FOR_COVERAGE = 150
_DONE_TO_STREAMS = {
    "answered-provisionally",
    "flushed",
    "gap-at-start",
    "partitions-added",
    "region-forbidden",
    "retention-trimmed",
    "sealed",
    "truncated",
}
"""These are so frequent that a swarm without one of them has not looked."""


@pytest.mark.timeout(_SWARM_S + 150)
def test_a_swarm_breaks_no_law(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = time.perf_counter  # noqa: TID251 - the swarm ends by real time.
    begun_s = now_s()

    total = run_swarm(
        range(1_000_000),
        jobs=2,
        on_seed=_ignore,
        is_time_over=lambda: now_s() - begun_s > _SWARM_S,
    )

    with capsys.disabled():
        sys.stdout.write(f"{total.seeds_count} seeds, {total.simulated_s:,.0f} simulated s ")
    assert total.violations == []
    assert total.acknowledged
    assert set(total.faults) <= set(FAULTS)
    assert set(total.sometimes) <= {*SOMETIMES, *EVENTS}
    if total.seeds_count > _SEEDS_FOR_COVERAGE:
        assert total.faults_never_struck == []
        assert _DONE_TO_STREAMS - set(total.sometimes) == set()


def test_equal_seeds_give_equal_traces_in_other_processes_with_other_hash_seeds() -> None:
    assert unequal_seeds(range(400, 410)) == []


def _ignore(_total: SwarmReport) -> None:
    pass
