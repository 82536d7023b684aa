"""`geolog relay switch-over`: moves the homes of streams by plan."""

import click

from geolog.cli.arguments import stream_name
from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by
from geolog.settings.quantities import parse_seconds

_PARALLEL_MAX = 64


@click.command(
    "switch-over",
    cls=Verb,
    epilog=examples(
        "geolog relay switch-over shop/carts --to eu-west --dry-run",
        "geolog relay switch-over shop/carts --to eu-west",
        "geolog relay switch-over --home us-east --to eu-west --yes",
    ),
)
@click.argument("stream", metavar="[STREAM]", required=False, type=stream_name)
@click.option("--home", metavar="REGION", help="All regional streams of this home.")
@click.option("--to", required=True, metavar="REGION", help="The new home, a target now.")
@click.option(
    "--dry-run", is_flag=True, help="Only show what would move, and what it waits for."
)
@click.option(
    "--within",
    "within_s",
    type=parse_seconds,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="A stream that has not moved by then stays where it is.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _PARALLEL_MAX),
    default=8,
    show_default=True,
    help="Streams that move at the same time.",
)
@done_by("geolog.cli.verbs.relay_moves")
def switch_over(**_: object) -> None:
    """Make a target the home of a stream, without losing a record.

    For work on a region, or to bring a stream closer to its writers. Appends wait while the old
    home closes the stream and the new one gets the rest; writers through proxies then go on in
    the new home by themselves. The old home becomes a target. If anything fails, the stream
    stays where it is.
    """
