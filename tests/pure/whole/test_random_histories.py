"""Whole clusters under random faults: answered records are kept, read records never vanish.

Small and quick; `histories` and `ensemble_histories` say how to try many more seeds.
"""

import pytest
from trio.testing import MockClock

from tests.pure.thinned import sampled
from tests.pure.whole.ensemble_histories import run_history as run_ensemble_history
from tests.pure.whole.histories import run_history


@pytest.mark.parametrize("seed", sampled(range(24), one_in=2))
async def test_a_history_keeps_the_laws(seed: int, autojump_clock: MockClock) -> None:
    told = await run_history(seed)

    assert told.acknowledged, "nothing was appended"


@pytest.mark.parametrize("seed", sampled(range(8), one_in=2))
async def test_a_history_with_replaced_members_keeps_the_laws(
    seed: int, autojump_clock: MockClock
) -> None:
    await run_ensemble_history(seed)  # Possibly no append succeeded, with so many faults.
