"""`geolog placement`: shows where fragments lie, repairs that, and simulates placement."""

import click

from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_bytes_per_second


@click.group(cls=Noun, name="placement")
def command() -> None:
    """Show, repair and simulate the placement of entries."""


@command.command(
    "evaluate",
    epilog=examples("geolog placement evaluate what-if.json"),
)
@click.argument("file", metavar="[FILE]", default="-")
@done_by("geolog.cli.verbs.placement")
def evaluate_(**_: object) -> None:
    """Simulate placement: read what-if scenarios as a JSON array, print a JSON array.

    Reads stdin if FILE is omitted or -. Needs no cluster. docs/PLACEMENT.md describes the
    scenarios.
    """


@command.command(
    "show",
    epilog=examples("geolog placement show shop/orders"),
)
@click.argument("name", metavar="STREAM[#P]", type=partition_or_stream)
@click.option(
    "--problems", "is_bad_only", is_flag=True, help="Show only fragments with a problem."
)
@click.option(
    "--check", "is_check", is_flag=True, help="Exit with 10 if a fragment has a problem."
)
@done_by("geolog.cli.verbs.placement")
def show_(**_: object) -> None:
    """Show the nodes of each fragment of a stream, and how well they adhere to its policy.

    Column "adherence" judges all members of a fragment, column "now" only those that are up.
    """


@command.command(
    "repair",
    epilog=examples(
        "geolog placement repair shop/orders --dry-run",
        "geolog placement repair --rate 50MB/s",
    ),
)
@click.argument("name", metavar="[STREAM[#P]]", type=partition_or_stream, required=False)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only print what would move.")
@click.option(
    "--replace-down",
    is_flag=True,
    help="Also replace members that are down, as if they were gone for good.",
)
@click.option(
    "--leave-forbidden", is_flag=True, help="Also move copies out of forbidden regions."
)
@click.option(
    "--rate",
    type=parse_bytes_per_second,
    metavar="RATE",
    help="Copy no faster than this, e.g. 50MB/s. [default: no limit]",
)
@done_by("geolog.cli.verbs.placement")
def repair_(**_: object) -> None:
    """Move fragments of STREAM, or of all streams, back to their policy with the fewest moves.

    Copies the entries first, then changes the ledger's record. Members that are down count as
    up unless --replace-down is given. If interrupted, run the same command again.

    Exits with 5 if all remaining problems may resolve by themselves, with 10 if any will not.
    """
