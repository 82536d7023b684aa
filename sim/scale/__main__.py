"""`python -P -m sim.scale`: placement at the size of a large cluster, measured and checked."""

import argparse
import json
import random
import resource
import sys
import time

import attrs

from sim.scale.layout import Layout
from sim.scale.loss import RepairConfig, losses
from sim.scale.spread import place_many, spread_of
from topology.location import Location
from topology.policies.region_aware import RegionAware
from topology.policy import PlacementRequest
from topology.quorum import Durability
from topology.tree import Weighting

MS_MAX = 0.5
MEMORY_MAX_BYTES = 200 << 20
DEVIATION_MAX = 0.05


def main() -> int:
    """Run the model; return 0 if time, memory and spread are within their bounds."""
    asked = _arguments().parse_args()
    layout = Layout(nodes=asked.nodes, regions=asked.regions, racks_per_region=asked.racks)
    members = layout.membership(is_weighted=asked.weighted)
    policy = RegionAware(
        default_location=Location("unknown", "unknown"),
        min_regions=2,
        durability=Durability.REGIONS,
        weighting=Weighting(3.0) if asked.weighted else None,
    )
    size = asked.ensemble_size
    write = asked.write_quorum or size
    request = PlacementRequest(
        ensemble_size=size, write_quorum=write, ack_quorum=write // 2 + 1
    )
    begun_s = time.perf_counter()  # noqa: TID251 - the model measures real time.
    tally = place_many(policy, members, request, asked.ensembles, random.Random(asked.seed))
    took_s = time.perf_counter() - begun_s  # noqa: TID251 - as above.
    spread = spread_of(tally, members, is_weighted=asked.weighted)
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ms = took_s / asked.ensembles * 1000
    within = (
        ms <= MS_MAX
        and memory_bytes < MEMORY_MAX_BYTES
        and max(spread.region_deviation_max, spread.rack_deviation_max) <= DEVIATION_MAX
    )
    report = {
        "layout": attrs.asdict(layout),
        "ensemble_size": size,
        "write_quorum": write,
        "is_weighted": asked.weighted,
        "ms_per_ensemble": round(ms, 4),
        "memory_mib": round(memory_bytes / (1 << 20), 1),
        "spread": attrs.asdict(spread),
        "losses": [attrs.asdict(one) for one in losses(tally, members, RepairConfig())],
        "is_within_bounds": within,
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if within else 10


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -P -m sim.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--racks", type=int, default=50, help="racks in each region")
    parser.add_argument("--ensembles", type=int, default=1_000_000)
    parser.add_argument("--ensemble-size", type=int, default=15)
    parser.add_argument("--write-quorum", type=int, help="default: the ensemble size")
    parser.add_argument("--weighted", action="store_true", help="racks of unequal free space")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
