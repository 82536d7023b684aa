"""Histories in which operators work on placement: every law holds, and law 21 is awake."""

import attrs

from sim.histories.run import run_seed
from sim.laws.state.law_21_best_choice import CHANGE_JUDGED
from sim.planted.bugs import planted
from sim.planted.hunt import options_of_hunt
from sim.world.draws.base_options import BASE
from sim.world.options import Hazards, Options
from sim.world.placement_knobs import PlacementKnobs
from topology.quorum import QuorumConfig

TWO_NODES_EACH = attrs.evolve(
    BASE.shape, nodes_by_region=tuple((region, 2) for region in BASE.shape.regions)
)
"""With three copies, three nodes are spare."""

MEMBERS_END = attrs.evolve(
    BASE,
    shape=attrs.evolve(
        TWO_NODES_EACH,
        quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2),
    ),
    knobs=attrs.evolve(BASE.knobs, session_timeout_s=2.0, appends_per_tenure=400),
    hazards=Hazards(chaos_s=40.0, duration_s_max=30.0, strikes_per_s=(("kill-node", 1.0),)),
)
"""Members stay down long enough to be replaced."""


def repaired(seed: int) -> Options:
    """The harsh options of a seed, with kills of nodes, spare nodes, and repairs."""
    drawn = options_of_hunt(seed)
    strikes = {**dict(drawn.hazards.strikes_per_s), "kill-node": 0.4}
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(TWO_NODES_EACH, writers_count=2),
        knobs=attrs.evolve(drawn.knobs, value_bytes_max=20_000, appends_per_tenure=40),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=12.0,
            duration_s_max=8.0,
            strikes_per_s=tuple(sorted(strikes.items())),
        ),
        placement=PlacementKnobs(repair_rest_s_max=1.0, repair_s_max=20.0),
    )


def test_placement_repairs_under_all_other_faults_break_no_law() -> None:
    reports = [run_seed(seed, options=repaired(seed)) for seed in (19, 28)]

    assert [one.violations for one in reports] == [[], []]
    assert {"placement-repaired"} <= {name for one in reports for name in one.sometimes}


def test_replacements_are_held_to_the_best_choice() -> None:
    # A change that breaks the law, in an ensemble that can be judged, is rare. The first of
    # these seeds has had one.
    seeds = range(10, 30)

    judged = (seed for seed in seeds if is_change_judged(seed))
    found = next(
        (laws for seed in judged if (laws := laws_broken_by_any_replacement(seed))), []
    )

    assert found == ["21"]


def is_change_judged(seed: int) -> bool:
    report = run_seed(seed, options=MEMBERS_END)
    assert report.violations == []
    return CHANGE_JUDGED in report.sometimes


def laws_broken_by_any_replacement(seed: int) -> list[str]:
    with planted("replacement-anywhere"):
        return [one.law for one in run_seed(seed, options=MEMBERS_END).violations]
