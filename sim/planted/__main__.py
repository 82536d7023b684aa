"""`python -P -m sim.planted [NAME...] --jobs N --tries K`: how soon planted bugs are found.

Prints a table: each bug, how many of its hunts found it, how many seeds they took, and the laws
that caught it. Hunts are independent, and each starts at seeds of its own. Exits with 1 if a
hunt found nothing. `--world KIND` hunts in worlds of a kind in place of those for the bug.
`NAME --replay SEED` prints the trace of the history in which a hunt found the bug, and exits
with 10 if that breaks a law again.
"""

import argparse
import sys

from sim.planted.bugs import PLANTED_BUGS
from sim.planted.hunt import Hunted, hunt_all, run_with, table
from sim.world.draws.named_worlds import WORLDS

_SEEDS_MAX = 5000
_HUNT_S_MAX = 1200.0
_VIOLATION = 10


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m sim.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs to hunt [all]")
    parser.add_argument("--jobs", type=int, default=1, help="hunts that run at once [1]")
    parser.add_argument("--tries", type=int, default=1, help="hunts per bug [1]")
    parser.add_argument(
        "--seeds", type=int, default=_SEEDS_MAX, help="most seeds per hunt [5000]"
    )
    parser.add_argument(
        "--for",
        type=float,
        default=_HUNT_S_MAX,
        dest="hunt_s",
        metavar="S",
        help="longest time of a hunt, in seconds of a processor [1200]",
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="SEED", help="first seed of a bug's hunts [0]"
    )
    parser.add_argument(
        "--world", choices=list(WORLDS), help="kind of worlds to hunt in [those for the bug]"
    )
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="print the trace of this history"
    )
    chosen = parser.parse_args()
    if chosen.replay is not None and len(chosen.names) != 1:
        parser.error("--replay needs exactly one NAME")
    for name in chosen.names:
        if name not in PLANTED_BUGS:
            parser.error(f"no planted bug {name!r}; choose from {', '.join(PLANTED_BUGS)}")
    return chosen


def _replay(name: str, seed: int, world: str | None) -> int:
    lines: list[str] = []
    report = run_with(name, seed, world=world, write_line=lines.append)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return _VIOLATION if report.violations else 0


def main() -> int:
    """Hunt, report each bug once its hunts end, and print the table."""
    chosen = _parse()
    if chosen.replay is not None:
        return _replay(chosen.names[0], chosen.replay, chosen.world)
    hunted: list[Hunted] = []

    def tell(one: Hunted) -> None:
        hunted.append(one)
        for found in one.founds:
            first = found.violations[0]
            sys.stderr.write(
                f"{one.name}: seed {found.seed}, after {found.seeds_count} seeds and"
                f" {found.processor_s:.0f} s of a processor: law {first.law}:"
                f" {first.message} ({first.replay})\n"
            )
        if not one.is_found:
            missed = one.tries_count - len(one.founds)
            sys.stderr.write(f"{one.name}: {missed} of {one.tries_count} hunts found nothing\n")
        sys.stderr.flush()

    hunt_all(
        chosen.names or PLANTED_BUGS,
        tries_count=chosen.tries,
        jobs=chosen.jobs,
        first=chosen.first,
        world=chosen.world,
        seeds_max=chosen.seeds,
        hunt_s_max=chosen.hunt_s,
        on_hunted=tell,
    )
    sys.stdout.writelines(f"{line}\n" for line in table(hunted))
    return 0 if all(one.is_found for one in hunted) else 1


if __name__ == "__main__":
    sys.exit(main())
