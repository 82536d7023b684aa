"""Checks that equal seeds give equal traces, in two processes with two hash seeds.

`python -P -m sim.histories.determinism --seeds A:B` runs each seed's history, about ten
simulated seconds, in two processes with different hash seeds, and compares the traces. Exits
with 10 and names the seeds whose traces differ.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs

from sim.histories.run import run_seed
from sim.world.draws.drawing import options_of_seed
from sim.world.faults.all_faults import FAULTS
from sim.world.options import Options

_HASH_SEEDS = ("1", "77")
_CHAOS_S = 6.0


def unequal_seeds(seeds: range) -> list[int]:
    """The seeds whose traces differ between two processes."""
    with ThreadPoolExecutor(len(_HASH_SEEDS)) as pool:
        one, other = pool.map(lambda hash_seed: _hashes_under(hash_seed, seeds), _HASH_SEEDS)
    return [seed for seed in seeds if one[seed] != other[seed]]


def _hashes_under(hash_seed: str, seeds: range) -> dict[int, str]:
    command = [sys.executable, "-P", "-m", "sim.histories.determinism", "--print", "--seeds"]
    done = subprocess.run(
        [*command, f"{seeds.start}:{seeds.stop}"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {int(seed): trace_hash for seed, trace_hash in rows}


def _hashes(seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    for seed in seeds:
        yield seed, run_seed(seed, options=_short(seed)).trace_hash


def _short(seed: int) -> Options:
    """The options of the seed, with a short chaos."""
    options = options_of_seed(seed, tuple(FAULTS))
    return attrs.evolve(options, hazards=attrs.evolve(options.hazards, chaos_s=_CHAOS_S))


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def main() -> int:
    """Compare, print the result, and return the exit code: 10 if a pair differs."""
    parser = argparse.ArgumentParser(
        prog="python -P -m sim.histories.determinism", description=__doc__
    )
    parser.add_argument("--seeds", type=_seeds, default=range(1000), metavar="A:B")
    parser.add_argument("--print", action="store_true", help="only print the hash of each seed")
    chosen = parser.parse_args()
    if chosen.print:
        for seed, trace_hash in _hashes(chosen.seeds):
            sys.stdout.write(f"{seed} {trace_hash}\n")
        return 0
    unequal = unequal_seeds(chosen.seeds)
    sys.stdout.write(f"{len(chosen.seeds) - len(unequal)} of {len(chosen.seeds)} pairs equal\n")
    for seed in unequal:
        sys.stdout.write(f"seed {seed}: the traces of two processes differ\n")
    return 10 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
