"""A history in which a stream is constantly deleted and created again: every law holds."""

import attrs

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.options import Hazards
from sim.world.stream_knobs import StreamKnobs

SHORT_LIVES = attrs.evolve(
    BASE,
    knobs=attrs.evolve(BASE.knobs, session_timeout_s=2.0, pipelined_max=4),
    links=attrs.evolve(BASE.links, latency_s_across=0.001),
    hazards=Hazards(
        chaos_s=15.0,
        duration_s_max=2.0,
        strikes_per_s=(("kill-client", 0.3), ("pause-process", 0.5)),
    ),
    stream=StreamKnobs(segment_age_s=1.0, deletion_rest_s_max=1.0, reader_rest_s_max=0.1),
)


def test_nothing_passes_from_one_life_of_a_stream_to_the_next() -> None:
    report = run_seed(1, options=SHORT_LIVES)

    assert report.violations == []
    assert {"deleted", "deleted-refused", "deleted-while-read"} <= set(report.sometimes)
