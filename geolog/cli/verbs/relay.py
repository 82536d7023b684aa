"""The work behind `geolog relay`."""

import sys
import textwrap
from datetime import UTC, datetime

import click
import trio

from geolog.cli.arguments import confirm
from geolog.cli.invocation import this_invocation
from geolog.cli.session import ask, open_log, too_slow
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.client.log import Log
from geolog.protocol.relay_report import LinkState, RelayedStreamReport, RelayEvent
from topology.errors import UnavailableError

_WATCH_S = 1.0

_CLEAR = "\x1b[H\x1b[2J"
"""Erases a terminal."""


def status(*, stream: str | None, watch: bool) -> None:
    """Show the state and the lag of each relayed stream, for each target."""
    if watch:
        run_to_a_signal(_watch, stream)
    else:
        _show(ask(lambda log: log.relay_status(stream)))


async def _watch(stream: str | None) -> None:
    invocation = this_invocation()
    async with open_log(invocation) as log:
        while True:
            next_s = trio.current_time() + _WATCH_S
            with trio.move_on_after(invocation.config.timeout_s) as patience:
                found = await log.relay_status(stream)
                if invocation.config.output == "table" and sys.stdout.isatty():
                    sys.stdout.write(_CLEAR)
                _show(found)
                sys.stdout.flush()
            if patience.cancelled_caught:
                raise await too_slow(invocation)
            await trio.sleep_until(next_s)


def _show(found: list[RelayedStreamReport]) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(found, output)
        return
    show([_row(one) for one in found], output, empty="no stream is relayed")
    for one in [one for one in found if one.is_held]:
        told = (
            f"{one.stream}#{one.partition}: appends are refused, because {one.target} is"
            " further behind than --rpo-max allows"
        )
        print(textwrap.fill(told, 96, initial_indent="  - ", subsequent_indent="    "))
    for alarm in sorted({f"{one.home}: {one.alarm}" for one in found if one.alarm}):
        print(textwrap.fill(alarm, 96, initial_indent="  - ", subsequent_indent="    "))


def _row(one: RelayedStreamReport) -> dict[str, object]:
    """Row of one link and partition."""
    return {
        "stream": f"{one.stream}#{one.partition}",
        "link": f"{one.home}→{one.target}",
        "state": one.state,
        "coordinator": one.coordinator,
        "standby": one.standby,
        "epoch": one.relay_epoch,
        "sent": one.sent_records,
        "durable": one.durable_records,
        "lag_records": one.lag_records,
        "lag_bytes": one.lag_bytes,
        "lag_s": one.lag_s,
        "round_trip_s": one.round_trip_s,
        "buffered": one.buffered_records,
        "covered": one.is_covered,
        "standby_covered": one.standby_is_covered,
        "held": one.is_held,
        "replayed": one.replayed_count,
        "duplicates": one.duplicates_count,
        "refused": one.refused_count,
    }


def pause(*, what: str, targets: tuple[str, ...]) -> None:
    """Stop relaying a stream to its targets, or everything to a region, until it is resumed."""
    _change(what, targets, is_paused=True)


def resume(*, what: str, targets: tuple[str, ...]) -> None:
    """Resume paused targets, from where they stopped."""
    _change(what, targets, is_paused=False)


def resync(*, stream: str, target: str, accept_gap: bool) -> None:
    """Discard a mirror, and copy it again from its home."""
    for warning in ask(lambda log: _not_stopped(log, stream, target)):
        print(textwrap.fill(f"warning: {warning}", 96), file=sys.stderr)
    confirm(f"Discard the mirror of {stream} in {target}, and copy it again?")
    found = ask(lambda log: log.resync_relay(stream, target=target, accept_gap=accept_gap))
    show(
        [
            {
                "partition": one.partition,
                "target": one.region,
                "begins": one.begins,
                "missing": one.gap_count,
            }
            for one in found
        ],
        this_invocation().config.output,
    )


async def _not_stopped(log: Log, stream: str, target: str) -> list[str]:
    """Why the mirrors that would be discarded may go on by themselves."""
    name, _, number = stream.partition("#")
    try:
        links = await log.relay_status(name)
    except UnavailableError as error:
        return [f"the state of the link to {target} is not known: {error}"]
    return [
        f"the link of {one.stream}#{one.partition} to {target} is {one.state.value}, not"
        f" stopped, and goes on by itself{f' ({one.alarm})' if one.alarm else ''}. Until the"
        " region has everything again, losing the home loses what it lacks"
        for one in links
        if one.target == target
        and number in ("", str(one.partition))
        and one.state is not LinkState.STOPPED
    ]


def _change(what: str, targets: tuple[str, ...], *, is_paused: bool) -> None:
    stream, regions = (what, targets or None) if "/" in what else (None, (what,))
    if stream is None and targets:
        raise click.UsageError(
            f"--target is for one stream, and {what} is a region; give NAMESPACE/NAME, or"
            " leave --target out"
        )

    async def change(log: Log) -> dict[str, list[str]]:
        act = log.pause_relay if is_paused else log.resume_relay
        return await act(stream, targets=regions)

    found = ask(change)
    show(
        [{"stream": name, "paused": paused} for name, paused in found.items()],
        this_invocation().config.output,
    )


def events(*, follow: bool) -> None:
    """Show the changes of links that the coordinators remember, by the homes' clocks."""
    run_to_a_signal(_print_events, follow)


async def _print_events(follow: bool) -> None:  # noqa: FBT001 - passed by position.
    output = this_invocation().config.output
    found: list[RelayEvent] = []
    async with open_log(this_invocation()) as log, log.relay_events(follow=follow) as events:
        async for event in events:
            if output == "table":
                print(_line(event), flush=True)
                found = [event]
            elif follow or output == "jsonl":
                show([event], "jsonl")
                sys.stdout.flush()
            else:
                found.append(event)
    if output == "json":
        show(found, output)
    elif output == "table" and not found:
        show([], output, empty="no events")


def _line(event: RelayEvent) -> str:
    at = datetime.fromtimestamp(event.time_us / 1e6, UTC).isoformat(timespec="milliseconds")
    link = f"{event.stream}#{event.partition} {event.home}→{event.target}"
    if event.kind == "alarm":
        return f"{at} {link} alarm: {event.after}"
    return f"{at} {link} {event.before} → {event.after}"
