"""`geolog relay`: shows how regional streams reach other regions, and mends that."""

import click

from geolog.cli.arguments import partition_or_stream, stream_name
from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by
from geolog.cli.nouns import relay_divergence
from geolog.cli.nouns.relay_failover import failover
from geolog.cli.nouns.relay_moves import switch_over


@click.group(cls=Noun, name="relay")
def command() -> None:
    """Show, pause and repair relaying between regions; move homes.

    A link is the way of a stream from its home to one region that mirrors it.
    """


command.add_command(switch_over)


command.add_command(failover)


command.add_command(relay_divergence.command)


@command.command(
    epilog=examples(
        "geolog relay status",
        "geolog relay status shop/carts --watch",
        "geolog relay status -o json",
    )
)
@click.argument("stream", metavar="[STREAM]", required=False, type=stream_name)
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@done_by("geolog.cli.verbs.relay")
def status(**_: object) -> None:
    """Show the state and the lag of each relayed stream, for each target.

    \b
    live        The target has all but the newest records.
    replaying   It is sent what it missed.
    connecting  The home waits for the target's answer.
    behind      The target is 5 s or more behind the home.
    paused      The target is sent nothing, until "geolog relay resume".
    down        The target is not connected or takes nothing, or no relay of the home
                is up. It goes on by itself once the cause is over; the reason is printed.
    stopped     The link needs an operator; the reason is printed.

    The lag counts from the end of the stream at home, and is told too large rather
    than too small.
    """  # noqa: D301 - click's mark for a block that keeps its lines.


@command.command(
    epilog=examples(
        "geolog relay pause shop/carts",
        "geolog relay pause shop/carts --target eu-west",
        "geolog relay pause eu-west",
    )
)
@click.argument("what", metavar="STREAM|REGION")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="REGION",
    help="Only this target of the stream; may be repeated. [default: all]",
)
@done_by("geolog.cli.verbs.relay")
def pause(**_: object) -> None:
    """Stop relaying a stream to its targets, or everything to a region, until it is resumed.

    Appends go on. The home keeps what the targets lack, however long that takes, and the lag
    grows: until they have it, losing the home loses it.
    """


@command.command(
    epilog=examples("geolog relay resume shop/carts", "geolog relay resume eu-west")
)
@click.argument("what", metavar="STREAM|REGION")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="REGION",
    help="Only this target of the stream; may be repeated. [default: all]",
)
@done_by("geolog.cli.verbs.relay")
def resume(**_: object) -> None:
    """Resume paused targets, from where they stopped."""


@command.command(
    epilog=examples(
        "geolog relay resync shop/carts --target eu-west",
        "geolog relay resync shop/carts --target eu-west --accept-gap --yes",
    )
)
@click.argument("stream", metavar="STREAM", type=partition_or_stream)
@click.option("--target", required=True, metavar="REGION", help="The region of the mirror.")
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on without records that the home has dropped or never had.",
)
@done_by("geolog.cli.verbs.relay")
def resync(**_: object) -> None:
    """Discard a mirror, and copy it again from its home.

    For a link that is stopped: the nodes of the region lost the mirror, it differs from its
    home, or the home dropped what comes next. Readers in the region read at home meanwhile.
    A link that is down goes on by itself: then this warns, and asks.
    """


@command.command(
    epilog=examples(
        "geolog relay events",
        "geolog relay events --follow -o jsonl",
    )
)
@click.option("--follow", is_flag=True, help="Go on with new events, until Ctrl-C.")
@done_by("geolog.cli.verbs.relay")
def events(**_: object) -> None:
    """Show the changes of links that the coordinators remember, by the homes' clocks."""
