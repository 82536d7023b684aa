"""Writers that append through write proxies, which come and go."""

import attrs
import pytest

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.draws.proxy_draws import DRAIN, with_proxies

_DRAWN = with_proxies(BASE)
_STRIKES = (("kill-client", 0.2), ("pause-process", 0.2), (DRAIN, 1.0))
_WORLD = attrs.evolve(
    _DRAWN,
    knobs=attrs.evolve(_DRAWN.knobs, session_timeout_s=2.0, pipelined_max=10),
    hazards=attrs.evolve(_DRAWN.hazards, chaos_s=5.0, strikes_per_s=_STRIKES),
)


@pytest.mark.parametrize("are_named", [False, True], ids=["nameless", "named"])
def test_writers_go_on_while_proxies_end_and_come_back(*, are_named: bool) -> None:
    knobs = attrs.evolve(_WORLD.knobs, are_writers_named=are_named)
    report = run_seed(1, options=attrs.evolve(_WORLD, knobs=knobs))

    assert report.violations == []
    assert report.acknowledged > 0
    assert report.faults[DRAIN] > 0


def test_a_history_has_the_same_trace_twice() -> None:
    first, second = (run_seed(2, options=_WORLD) for _ in range(2))

    assert first.trace_hash == second.trace_hash
