"""`python -P -m sim.model`: the ledger protocol's real cores, under all orders of events.

Goes through all states of a small model, breadth first, or with `--walks N` along N random
walks in larger models. Prints the number and depth of the states. If a law is broken, prints
the steps that lead there and exits with 10.
"""

import argparse
import sys
from random import Random

from sim.model.search import Searched, search_all, walk
from sim.model.shape import ModelShape
from sim.model.state import State
from topology.quorum import QuorumConfig

_VIOLATION = 10
_WALK_STEPS_MAX = 400


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m sim.model", description=__doc__)
    parser.add_argument("--entries", type=int, default=1, help="entries appended [1]")
    parser.add_argument("--crashes", type=int, default=1, help="most power losses [1]")
    parser.add_argument("--takes", type=int, default=1, help="most takeovers [1]")
    parser.add_argument("--depth", type=int, help="most steps [no bound]")
    parser.add_argument("--timeouts", action="store_true", help="let recovery give members up")
    parser.add_argument("--late", action="store_true", help="let answers to recovery come late")
    parser.add_argument("--no-push", action="store_true", help="send the LAC only with adds")
    parser.add_argument(
        "--walks", type=int, help="take this many random walks, with 4 to 9 nodes"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first walk [0]")
    return parser.parse_args()


def _search(chosen: argparse.Namespace) -> Searched:
    shape = ModelShape(
        entries_count=chosen.entries,
        crashes_max=chosen.crashes,
        takes_max=chosen.takes,
        has_timeouts=chosen.timeouts,
        has_late_answers=chosen.late,
        pushes_lac=not chosen.no_push,
    )

    def tell(depth: int, states_count: int) -> None:
        sys.stderr.write(f"depth {depth}, {states_count} states\n")

    return search_all(State.first(shape), depth_max=chosen.depth, on_depth=tell)


def draw_shape(rng: Random) -> ModelShape:
    """A larger model: 4 to 9 nodes in 2 or 3 regions, several entries and recoverers."""
    nodes_count, regions_count = rng.randint(4, 9), rng.choice((2, 3))
    write = rng.randint(3, min(nodes_count, 5))
    min_regions = rng.randint(1, 2)
    quorum = QuorumConfig(
        ensemble_size=nodes_count,
        write_quorum=write,
        ack_quorum=rng.randint(max(2, min_regions), write),
        min_regions=min_regions,
    )
    return ModelShape(
        regions=tuple("abc"[slot % regions_count] for slot in range(nodes_count)),
        quorum=quorum,
        entries_count=rng.randint(1, 6),
        recoverers_count=rng.randint(1, 2),
        takes_max=rng.randint(1, 4),
        crashes_max=rng.randint(0, 3),
        has_late_answers=True,
    )


def _walk_all(chosen: argparse.Namespace) -> Searched:
    states_count = depth = goals_count = 0
    for seed in range(chosen.seed, chosen.seed + chosen.walks):
        shape = draw_shape(Random(f"{seed}/shape"))
        walked = walk(State.first(shape), seed, steps_max=_WALK_STEPS_MAX)
        if walked.broken:
            sys.stdout.write(f"seed {seed}: {shape}\n")
            return walked
        states_count += walked.states_count
        depth = max(depth, walked.depth)
        goals_count += walked.goals_count
    return Searched(
        states_count=states_count,
        steps_count=states_count,
        depth=depth,
        is_closed=False,
        goals_count=goals_count,
    )


def main() -> int:
    """Search, and print the result."""
    chosen = _parse()
    searched = _walk_all(chosen) if chosen.walks else _search(chosen)
    if searched.broken:
        steps = "\n".join(f"  {words}" for words in searched.way)
        sys.stdout.write(f"law {searched.broken}, after\n{steps}\n")
        return _VIOLATION
    end = "closed: all states were seen" if searched.is_closed else "not closed"
    sys.stdout.write(
        f"{searched.states_count} states ({searched.goals_count} with a ledger recovered),"
        f" {searched.steps_count} steps, depth {searched.depth}, {end}; no law is broken\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
