"""Reads under a hedge policy that is not geolog's: it costs requests, and breaks no law."""

import attrs
import pytest

from geolog.protocol.hedge_policy import HedgeMoment
from sim.histories.run import run_seed
from sim.planted.hunt import options_of_hunt
from sim.world import own_hedge
from sim.world.own_hedge import OWN_NAME, EagerPolicy


def test_readers_under_a_policy_of_their_own_keep_all_laws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    class Counted(EagerPolicy):
        def pause_s(self, moment: HedgeMoment) -> float | None:
            asked.append(moment.asked_count)
            return super().pause_s(moment)

    monkeypatch.setattr(own_hedge, "EagerPolicy", Counted)
    drawn = options_of_hunt(3)
    knobs = attrs.evolve(drawn.knobs, hedge=OWN_NAME)

    report = run_seed(3, options=attrs.evolve(drawn, knobs=knobs))

    assert report.violations == []
    assert report.acknowledged > 0
    assert asked, "reads went by this policy"
