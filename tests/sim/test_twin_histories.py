"""Two live processes under one writer id, with owners of single partitions elsewhere."""

import attrs
import pytest

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.draws.session_draws import with_twins

_WORLD = with_twins(BASE)
_SHORT = attrs.evolve(_WORLD, hazards=attrs.evolve(_WORLD.hazards, chaos_s=8.0))

_SESSIONS = {"owned-apart", "session-succeeded"}


@pytest.mark.parametrize("seed", range(2))
def test_sessions_of_one_writer_take_turns_while_the_stream_grows(seed: int) -> None:
    report = run_seed(seed, options=_WORLD)

    assert report.violations == []
    assert report.acknowledged > 0
    assert _SESSIONS.issubset(report.sometimes)


def test_a_history_has_the_same_trace_twice() -> None:
    first, second = (run_seed(1, options=_SHORT) for _ in range(2))

    assert first.trace_hash == second.trace_hash
