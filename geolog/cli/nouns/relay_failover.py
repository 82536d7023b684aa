"""`geolog relay failover`: makes a target the home of streams whose home is lost."""

import click

from geolog.cli.arguments import stream_name
from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_seconds

_PARALLEL_MAX = 64


@click.command(
    "failover",
    cls=Verb,
    epilog=examples(
        "geolog relay failover shop/carts --dry-run",
        "geolog relay failover shop/carts --to eu-west",
        "geolog relay failover --home us-east --yes",
    ),
)
@click.argument("stream", metavar="[STREAM]", required=False, type=stream_name)
@click.option("--home", metavar="REGION", help="All regional streams of this home.")
@click.option(
    "--to",
    metavar="REGION",
    help="The region to become the home; must be a target. [default: the one that lacks least]",
)
@click.option(
    "--without",
    multiple=True,
    metavar="REGION",
    help="Leave out the logs of a region that cannot be read; what only it has is kept aside"
    " once it is back. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would move, and what is at risk.")
@click.option("--past", is_flag=True, help="List the stream's past failovers.")
@click.option(
    "--within",
    "within_s",
    type=parse_seconds,
    default="1m",
    show_default=True,
    metavar="TIME",
    help="Give up on a stream after this long; it then keeps its home.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _PARALLEL_MAX),
    default=8,
    show_default=True,
    help="Streams that are failed over at the same time.",
)
@done_by("geolog.cli.verbs.relay_failover")
def failover(**_: object) -> None:
    """Make a target the new home of a stream whose home is lost.

    Records that the old home acknowledged but that reached no other region are at risk. Their
    number, as far as the targets know it, is shown first and recorded with the stream. The new
    home first fetches what it lacks from the other regions, and from the old home's nodes if
    they still answer. If the old home comes back with more records, those are kept aside
    ("geolog relay divergence"), and the old home becomes a target.

    If the home still works, use "geolog relay switch-over": it loses nothing.
    """
