"""`geolog cluster`: shows the cluster's health and what it can lose."""

import click

from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="cluster")
def command() -> None:
    """Show the cluster's health and what it can lose."""


@command.command(
    epilog=examples(
        "geolog cluster health",
        "geolog cluster health --wait --timeout 2m",
    )
)
@click.option(
    "--wait",
    "is_waiting",
    is_flag=True,
    help="Wait up to --timeout for the cluster to be healthy.",
)
@click.option(
    "--every-ledger",
    is_flag=True,
    help="Judge the placement of every ledger, even if there are more than 2,000.",
)
@done_by("geolog.cli.verbs.cluster")
def health(**_: object) -> None:
    """Report the cluster's health and how many more regions it can lose.

    \b
    healthy    Every stream works, and the next loss breaks no promise (exit 0).
    degraded   Everything works, but copies may be missing, or the next loss
               would break a promise (exit 10).
    unhealthy  Something does not work now (exit 10).

    Each reason names the command that fixes it. If there are more than 2,000 ledgers,
    health judges the placement of the newest and of a random sample only, unless --every-ledger
    is given.
    """  # noqa: D301 - click's mark for a block that keeps its lines.


@command.command(epilog=examples("geolog cluster status -o json"))
@done_by("geolog.cli.verbs.cluster")
def status(**_: object) -> None:
    """Show the same as health; exits with 0 whatever the state."""
