"""Measures simulated seconds per second of one core, for a world of nine nodes.

Run as `python -P -m sim.histories.speed`.
"""

import sys
import time

import attrs

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.options import Hazards
from topology.quorum import QuorumConfig

NINE_NODES = attrs.evolve(
    BASE,
    shape=attrs.evolve(
        BASE.shape,
        nodes_by_region=tuple((region, 3) for region in BASE.shape.regions),
        quorum=QuorumConfig(ensemble_size=6, write_quorum=3, ack_quorum=2, min_regions=2),
        writers_count=2,
    ),
    knobs=attrs.evolve(
        BASE.knobs,
        value_bytes_max=1000,
        pipelined_max=4,
        appends_per_tenure=40,
        rest_s_max=5.0,
    ),
    links=attrs.evolve(BASE.links, latency_s_across=0.02, jitter=0.1, stall_chance=0.001),
    hazards=Hazards(
        chaos_s=60.0,
        duration_s_max=4.0,
        strikes_per_s=(("cut-link", 0.1), ("kill-node", 0.1)),
    ),
)


def main() -> int:
    """Run one history, and print its speed by the processor's clock."""
    begun_s = time.process_time()
    report = run_seed(1, options=NINE_NODES)
    used_s = time.process_time() - begun_s
    sys.stdout.write(
        f"{report.simulated_s:.0f} simulated s in {used_s:.1f} s of one core:"
        f" {report.simulated_s / used_s:.0f} per second, {report.events} events,"
        f" {report.acknowledged} records acknowledged\n"
    )
    return 10 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
