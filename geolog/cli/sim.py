"""`geolog sim`: a whole cluster in a hostile world, all of it drawn from one seed."""

import sys

import click

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import print_json, show
from geolog.cli.settings import Output
from sim.world.run import SimReport, run_seed

_SEED = click.option("--seed", type=click.IntRange(min=0), required=True, metavar="N")


@click.group(cls=Noun, name="sim")
def command() -> None:
    """Deterministic simulation: the real code, faults, and the laws it must keep."""


@command.command()
@_SEED
def run(*, seed: int) -> None:
    """Run the history of one seed. Ends with 10 if a law was broken."""
    report = run_seed(seed)
    _show(report, this_invocation().config.output)
    _check(report)


@command.command()
@_SEED
def replay(*, seed: int) -> None:
    """Run the history of one seed again and print its trace, one line an event.

    The columns are the simulated time in seconds, the process, the event, its details. Ends
    with 10 if a law was broken.
    """
    lines: list[str] = []
    try:
        report = run_seed(seed, write_line=lines.append)
    finally:
        # Not line by line: a reader that leaves early must not strike the world.
        sys.stdout.writelines(f"{line}\n" for line in lines)
    _check(report)


def _show(report: SimReport, output: Output) -> None:
    if output == "table":
        show(report, output)
        return
    print_json(
        {
            "seed": report.seed,
            "trace_hash": report.trace_hash,
            "simulated_s": report.simulated_s,
            "steps": report.steps,
            "violations": [
                {"law": one.law, "message": one.message, "replay": one.replay}
                for one in report.violations
            ],
        }
    )


def _check(report: SimReport) -> None:
    if report.violations:
        raise CheckFailedError(
            f"seed {report.seed} breaks the laws: "
            + "; ".join(f"{one.law}: {one.message}" for one in report.violations)
            + f" (look at it with: {report.violations[0].replay})"
        )
