"""`geolog region`: lists regions and their distances, forbids or allows placement in them."""

import click

from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="region")
def command() -> None:
    """List regions and their distances; forbid or allow placement in them."""


@command.command("ls", epilog=examples("geolog region ls", "geolog region ls -o json"))
@done_by("geolog.cli.verbs.region")
def list_(**_: object) -> None:
    """List regions: nodes by state, free space, and whether placement is allowed."""


@command.command(
    epilog=examples(
        "geolog region forbid-placement eu-west",
        "geolog region forbid-placement eu-west --yes -o json",
    )
)
@click.argument("name", metavar="REGION")
@done_by("geolog.cli.verbs.region")
def forbid_placement(**_: object) -> None:
    """Place nothing new in REGION; existing copies stay there and remain readable.

    Running writers follow without a restart, and open segments leave the region. Asks for
    confirmation if a stream could no longer get a new segment.
    """


@command.command(epilog=examples("geolog region allow-placement eu-west"))
@click.argument("name", metavar="REGION")
@done_by("geolog.cli.verbs.region")
def allow_placement(**_: object) -> None:
    """Allow placement in REGION again."""


@command.command(
    epilog=examples(
        "geolog region latency",
        "geolog region latency --watch",
        "geolog region latency -o json",
    )
)
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@done_by("geolog.cli.verbs.region")
def latency(**_: object) -> None:
    """Show the round trips between regions, as their write proxies measure them.

    Each row is measured by a proxy of that region, which probes one storage node of every
    region once a second. Without a proxy that takes HTTP, this command measures its own row.
    """
