"""`geolog region`: lists regions, and forbids or allows placement in them."""

import click

from geolog.admin.placement.region_switches import RegionChange, RegionLoss, RegionSwitches
from geolog.cli.arguments import confirm
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show

_STREAMS_NAMED_MAX = 5


@click.group(cls=Noun, name="region")
def command() -> None:
    """List regions; forbid or allow placement in them."""


@command.command("ls", epilog=examples("geolog region ls", "geolog region ls -o json"))
def list_() -> None:
    """List regions: nodes by state, free space, and whether placement is allowed."""
    found = ask(lambda log: RegionSwitches(log.access).regions())
    show(
        found,
        this_invocation().config.output,
        empty="no storage node has joined the cluster yet",
    )


@command.command(
    epilog=examples(
        "geolog region forbid-placement eu-west",
        "geolog region forbid-placement eu-west --yes -o json",
    )
)
@click.argument("name", metavar="REGION")
def forbid_placement(name: str) -> None:
    """Place nothing new in REGION; existing copies stay there and remain readable.

    Running writers follow without a restart, and open segments leave the region. Asks for
    confirmation if a stream could no longer get a new segment.
    """
    loss = ask(lambda log: RegionSwitches(log.access).loss_without(name))
    if loss.without_place or loss.undecided:
        confirm(_what_is_lost(name, loss))
    _show(ask(lambda log: RegionSwitches(log.access).forbid(name)))


@command.command(epilog=examples("geolog region allow-placement eu-west"))
@click.argument("name", metavar="REGION")
def allow_placement(name: str) -> None:
    """Allow placement in REGION again."""
    _show(ask(lambda log: RegionSwitches(log.access).allow(name)))


def _what_is_lost(region: str, loss: RegionLoss) -> str:
    facts = []
    if loss.without_place:
        facts.append(f"no new segment can be placed for {_named(loss.without_place)}")
    if loss.undecided:
        facts.append(
            "the search was cut off before it found a place for a new segment of"
            f" {_named(loss.undecided)}"
        )
    return (
        f"Without {region}, {'; '.join(facts)}. These streams continue in their open segments"
        " only while those can be written. Forbid placement anyway?"
    )


def _show(change: RegionChange) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(change, output)
        return
    tell(
        f"placement in {change.region} is {change.placement}"
        + ("" if change.is_changed else " (unchanged)")
    )
    if change.streams_without_place:
        tell(
            f"warning: no new segment can be placed for {_named(change.streams_without_place)}"
        )
    if change.streams_undecided:
        tell(
            "warning: the search was cut off before it found a place for a new segment of"
            f" {_named(change.streams_undecided)}"
        )
    if change.placement == "forbidden" and change.streams_less_safe:
        tell(
            "warning: losing another region could stop new segments of"
            f" {_named(change.streams_less_safe)}"
        )


def _named(streams: list[str]) -> str:
    """Name the first few streams and count the rest."""
    named = ", ".join(streams[:_STREAMS_NAMED_MAX])
    more = len(streams) - _STREAMS_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
