"""`geolog region`: the regions of the cluster, and where something new may be placed."""

import click

from geolog.admin.placement.region_switches import RegionChange, RegionLoss, RegionSwitches
from geolog.cli.arguments import confirm
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show

_STREAMS_NAMED_MAX = 5


@click.group(cls=Noun, name="region")
def command() -> None:
    """The regions, and where something new may be placed."""


@command.command("ls", epilog=examples("geolog region ls", "geolog region ls -o json"))
def list_() -> None:
    """List the regions: their nodes by state, free space, whether placement is forbidden."""
    found = ask(lambda log: RegionSwitches(log.access).regions())
    show(found, this_invocation().config.output, empty="no storage node has joined the cluster")


@command.command(
    epilog=examples(
        "geolog region forbid-placement eu-west",
        "geolog region forbid-placement eu-west --yes -o json",
    )
)
@click.argument("name", metavar="REGION")
def forbid_placement(name: str) -> None:
    """Place nothing new in REGION, from now on; what lies there stays, and is read.

    Writers follow without being started again, and open segments leave it. Asks first where
    streams could not get a new segment any more.
    """
    loss = ask(lambda log: RegionSwitches(log.access).loss_without(name))
    if loss.without_place or loss.undecided:
        confirm(_what_is_lost(name, loss))
    _show(ask(lambda log: RegionSwitches(log.access).forbid(name)))


@command.command(epilog=examples("geolog region allow-placement eu-west"))
@click.argument("name", metavar="REGION")
def allow_placement(name: str) -> None:
    """Place in REGION again."""
    _show(ask(lambda log: RegionSwitches(log.access).allow(name)))


def _what_is_lost(region: str, loss: RegionLoss) -> str:
    facts = []
    if loss.without_place:
        facts.append(f"no new segment can be placed for {_named(loss.without_place)}")
    if loss.undecided:
        facts.append(
            "it is undecided, since the search is cut off, whether one can be placed for"
            f" {_named(loss.undecided)}"
        )
    return (
        f"Without {region} {'; '.join(facts)}: they go on in those that are open, for as long"
        " as these can be written. Forbid it all the same?"
    )


def _show(change: RegionChange) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(change, output)
        return
    tell(
        f"placement in {change.region} is {change.placement}"
        + ("" if change.is_changed else ", as before")
    )
    if change.streams_without_place:
        tell(
            "warning: no new segment can be placed now for"
            f" {_named(change.streams_without_place)}"
        )
    if change.streams_undecided:
        tell(
            "warning: it is undecided, since the search was cut off, whether new segments can"
            f" be placed now for {_named(change.streams_undecided)}"
        )
    if change.placement == "forbidden" and change.streams_less_safe:
        tell(
            "warning: new segments might not be written on without another region for"
            f" {_named(change.streams_less_safe)}"
        )


def _named(streams: list[str]) -> str:
    """Some streams by name, the others by number."""
    named = ", ".join(streams[:_STREAMS_NAMED_MAX])
    more = len(streams) - _STREAMS_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
