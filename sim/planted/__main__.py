"""`python -P -m sim.planted NAME --seeds A:B`: the first seed that finds a planted bug.

Ends with 1 if none does.
"""

import argparse
import sys

from sim.planted.bugs import PLANTED_BUGS
from sim.planted.hunt import hunt


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def main() -> int:
    """Hunt, tell, and say by the exit code whether it was found."""
    parser = argparse.ArgumentParser(prog="python -P -m sim.planted", description=__doc__)
    parser.add_argument("name", choices=sorted(PLANTED_BUGS))
    parser.add_argument("--seeds", type=_seeds, default=range(1000), metavar="A:B")
    chosen = parser.parse_args()
    found = hunt(chosen.name, chosen.seeds)
    if found is None:
        sys.stdout.write(f"{chosen.name}: not found in {len(chosen.seeds)} seeds\n")
        return 1
    first = found.violations[0]
    sys.stdout.write(
        f"{chosen.name}: seed {found.seed}, after {found.seeds_count} seeds:"
        f" law {first.law}: {first.message}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
