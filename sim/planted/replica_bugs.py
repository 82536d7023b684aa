"""Defects of asking replicas: each function replaces a good method."""

import math

from geolog.protocol.speculation import (
    AnswerWorth,
    CancelStage,
    Effect,
    Exhausted,
    Speculation,
)
from sim.planted.planted_bug import PlantedBug
from topology.replica_ranking import _Observed

_on_answer = Speculation.on_answer

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001


def end_at_first_negative(
    core: Speculation, stage: int, worth: AnswerWorth, now_s: float
) -> list[Effect]:
    """Take the first ABSENT for the answer of every replica."""
    if worth is not AnswerWorth.NEGATIVE or core.is_over or stage not in core._out:
        return _on_answer(core, stage, worth, now_s)
    core._is_over = True
    losers: list[Effect] = [CancelStage(one) for one in core._out if one != stage]
    return [*losers, Exhausted(tuple(range(core._stages_count)))]


def is_first_trial(observed: _Observed, _now_s: float) -> bool:
    """Try a replica once: if the read that tries it is given up, no other read does."""
    return observed.tried_s == -math.inf


REPLICA_BUGS: dict[str, PlantedBug] = {
    "first-negative-ends": PlantedBug(
        30,
        "a read that may be hedged ends with the first replica that says ABSENT",
        [(Speculation, "on_answer", end_at_first_negative)],
    ),
    "trial-held-for-ever": PlantedBug(
        93,
        "a demoted replica is never asked again once a read that tried it was given up",
        [(_Observed, "is_trial_due", is_first_trial)],
    ),
}
"""These bugs, by name."""
