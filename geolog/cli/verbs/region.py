"""The work behind `geolog region`."""

import sys

import trio

from geolog.admin.placement.region_switches import RegionChange, RegionLoss, RegionSwitches
from geolog.admin.region_latency import LatencyMatrix, RegionLatency
from geolog.cli.arguments import confirm
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.session import ask, open_log, too_slow
from geolog.cli.terminal.latency_table import latency_lines
from geolog.cli.terminal.output import plain, print_json, show, table_medium

_STREAMS_NAMED_MAX = 5

_WATCH_S = 1.0
"""Pause between two matrices; proxies probe as often."""


def list_() -> None:
    """List regions: nodes by state, free space, and whether placement is allowed."""
    found = ask(lambda log: RegionSwitches(log.access).regions())
    show(
        found,
        this_invocation().config.output,
        empty="no storage node has joined the cluster yet",
    )


def forbid_placement(name: str) -> None:
    """Place nothing new in REGION; existing copies stay there and remain readable."""
    loss = ask(lambda log: RegionSwitches(log.access).loss_without(name))
    if loss.without_place or loss.undecided:
        confirm(_what_is_lost(name, loss))
    _show(ask(lambda log: RegionSwitches(log.access).forbid(name)))


def allow_placement(name: str) -> None:
    """Allow placement in REGION again."""
    _show(ask(lambda log: RegionSwitches(log.access).allow(name)))


def latency(*, watch: bool) -> None:
    """Show the round trips between regions, as their write proxies measure them."""
    if watch:
        trio.run(_watch, this_invocation())
    else:
        matrix = ask(lambda log: RegionLatency(log.access).matrix(), minds_region=True)
        _show_latency(matrix, this_invocation())


async def _watch(invocation: Invocation) -> None:
    lines_count = 0
    async with open_log(invocation, minds_region=True) as log:
        latencies = RegionLatency(log.access)
        while True:
            next_s = trio.current_time() + _WATCH_S
            with trio.move_on_after(invocation.config.timeout_s) as patience:
                matrix = await latencies.matrix()
                if lines_count and sys.stdout.isatty():
                    # Back to the first line of the last table, and erase it.
                    sys.stdout.write(f"\x1b[{lines_count}F\x1b[J")
                lines_count = _show_latency(matrix, invocation)
            if patience.cancelled_caught:
                raise await too_slow(invocation)
            await trio.sleep_until(next_s)


def _show_latency(matrix: LatencyMatrix, invocation: Invocation) -> int:
    """Print one matrix; returns the number of lines."""
    if invocation.config.output != "table":
        print_json(plain(matrix))
        sys.stdout.flush()
        return 1
    lines = list(latency_lines(matrix, *table_medium()))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
    return len(lines)


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
